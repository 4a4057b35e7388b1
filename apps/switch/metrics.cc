#include "switch/metrics.h"

#include <fmt/core.h>
#include <httplib.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "base/json.h"
#include "switch/prometheus_text.h"

namespace netfold::apps {
namespace {

constexpr int kStartMaxMs = 5000;

constexpr const char* kIndex =
    "Counters of a Netfold switch.\n/metrics      for Prometheus\n/stats.json   the same as JSON, for `netfold top`\n"
    "/healthz      200 while the switch answers its workers\n/readyz       200 while it takes new jobs, else 503\n";

constexpr int kOk = 200, kBadRequest = 400, kForbidden = 403, kConflict = 409, kUnavailable = 503;
constexpr link::PortNumber kPortsMax = 64;

std::optional<link::PortNumber> port_of(const std::string& text, link::PortNumber last) {
  link::PortNumber port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_number = failed == std::errc() && end == text.data() + text.size();
  return is_number && port <= last ? std::optional(port) : std::nullopt;
}

// "all", "none", or numbers with commas between them.
std::optional<std::uint64_t> ports_of(const std::string& text) {
  if (text == "all") return ~std::uint64_t{0};
  if (text == "none") return 0;
  std::uint64_t ports = 0;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const auto port = port_of(word, kPortsMax - 1);
    if (!port) return std::nullopt;
    ports |= std::uint64_t{1} << *port;
  }
  return text.empty() ? std::nullopt : std::optional(ports);
}

// "none", or a number.
std::optional<link::PortNumber> uplink_of(const std::string& text) {
  return text == "none" ? link::kNoPort : port_of(text, switching::AggregationSettings::kUplinkMax);
}

// ?ports=0,1,2&adds=float&uplink=3: parameters that are not given stay as they are. Only a program on this machine may
// change anything.
std::pair<int, std::string> change_folding(switching::FramePlane* frames, const httplib::Request& request) {
  if (request.remote_addr != request.local_addr && request.remote_addr.rfind("127.", 0) != 0) {
    return {kForbidden, "only a program on the switch's own machine may change what it folds"};
  }
  switching::AggregationConfigUpdate change;
  if (request.has_param("ports")) {
    change.ports = ports_of(request.get_param_value("ports"));
    if (!change.ports) return {kBadRequest, "ports: all, none, or numbers from 0 to 63 with commas"};
  }
  if (request.has_param("adds")) {
    const std::string adds = request.get_param_value("adds");
    if (adds != "float" && adds != "int") return {kBadRequest, "adds: float or int"};
    change.adds_floats = adds == "float";
  }
  if (request.has_param("uplink")) {
    change.uplink = uplink_of(request.get_param_value("uplink"));
    if (!change.uplink) return {kBadRequest, "uplink: none, or the number of a port, up to 62"};
  }
  if (!change.ports && !change.adds_floats && !change.uplink) {
    return {kBadRequest, "name ports, adds, an uplink, or several of them"};
  }
  if (request.has_param("job")) {
    const std::string job = request.get_param_value("job");
    const bool is_number = !job.empty() && job.size() <= 5 && job.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoul(job) > UINT16_MAX) return {kBadRequest, "job: a number up to 65535"};
    change.job = static_cast<std::uint16_t>(std::stoul(job));
  }
  if (frames == nullptr) return {kConflict, "this is not an Ethernet switch: start it with --dpdk"};
  if (const auto changed = frames->configure(change); !changed) return {kConflict, changed.error().message};
  return {kOk, "changed"};
}

// Connections that wait for a thread are descriptors. Where too many wait, the listener does not accept more.
class BoundedPool final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> task) override {
    {
      std::unique_lock lock(mutex_);
      has_room_.wait(lock, [&] { return waiting_ < kWaitingMax; });
      ++waiting_;
    }
    pool_.enqueue([this, task = std::move(task)] {
      {
        const std::lock_guard lock(mutex_);
        --waiting_;
      }
      has_room_.notify_one();
      task();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  static constexpr std::size_t kThreads = 4, kWaitingMax = 16;

  std::mutex mutex_;
  std::condition_variable has_room_;
  std::size_t waiting_ = 0;
  httplib::ThreadPool pool_{kThreads};
};

class HttpMetrics final : public Metrics {
 public:
  HttpMetrics(switching::SwitchServer& server, switching::FramePlane* frames) {
    http_.new_task_queue = [] { return new BoundedPool; };
    http_.set_read_timeout(1);  // an idle connection holds a thread
    http_.set_write_timeout(2);
    http_.set_keep_alive_timeout(1);
    http_.set_payload_max_length(4096);
    http_.set_socket_options([](socket_t socket) {  // its default lets two switches share a port, unnoticed
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.Get("/metrics", [&server, frames](const httplib::Request&, httplib::Response& response) {
      switching::PrometheusText version;
      version.family("netfold_switch_info", "gauge", "Always 1; the label is the version of Netfold");
      version.sample("{version=\"" NETFOLD_VERSION "\"}", 1);
      std::string text = version.take() + switching::to_prometheus(server.stats());
      if (frames != nullptr) text += switching::to_prometheus(frames->frame_stats());
      response.set_content(text, "text/plain; version=0.0.4");
    });
    http_.Get("/stats.json", [&server, frames](const httplib::Request&, httplib::Response& response) {
      auto json = switching::to_json(server.stats());
      json["version"] = NETFOLD_VERSION;
      if (frames != nullptr) json["frames"] = switching::to_json(frames->frame_stats());
      response.set_content(json_text(json) + "\n", "application/json");
    });
    http_.Get("/healthz", [&server](const httplib::Request&, httplib::Response& response) {
      static_cast<void>(server.stats());  // the control thread answers it, or the probe times out
      response.set_content("ok\n", "text/plain");
    });
    http_.Get("/readyz", [&server](const httplib::Request&, httplib::Response& response) {
      const auto stats = server.stats();
      const bool is_full = stats.jobs.size() >= stats.jobs_max || stats.memory_bytes >= stats.memory_max_bytes;
      response.status = stats.is_draining || is_full ? kUnavailable : kOk;
      response.set_content(stats.is_draining ? "draining\n"
                           : is_full         ? "full: jobs or memory are used up\n"
                                             : "ready\n",
                           "text/plain");
    });
    http_.Post("/folding", [frames](const httplib::Request& request, httplib::Response& response) {
      const auto [status, text] = change_folding(frames, request);
      response.status = status;
      response.set_content(text + "\n", "text/plain");
    });
    http_.Get("/",
              [](const httplib::Request&, httplib::Response& response) { response.set_content(kIndex, "text/plain"); });
  }

  ~HttpMetrics() override {
    http_.stop();
    if (thread_.joinable()) thread_.join();
  }

  bool begin(link::Address at) {
    const std::string host = to_string(at.ip);
    if (at.port == 0) {
      const int port = http_.bind_to_any_port(host);
      if (port < 0) return false;
      at.port = static_cast<std::uint16_t>(port);
    } else if (!http_.bind_to_port(host, at.port)) {
      return false;
    }
    address_ = at;
    thread_ = std::thread([this] { http_.listen_after_bind(); });
    for (int waited_ms = 0; !http_.is_running(); ++waited_ms) {  // stop() before that would be lost
      if (waited_ms == kStartMaxMs) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  link::Address address() const override { return address_; }

 private:
  httplib::Server http_;
  link::Address address_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::start(link::Address at, switching::SwitchServer& server,
                                                switching::FramePlane* frames) {
  auto metrics = std::make_unique<HttpMetrics>(server, frames);
  if (metrics->begin(at)) return metrics;
  return fail(ErrorCode::kSystem, fmt::format("cannot serve metrics at {}: another program has this port, or no "
                                              "interface this address; choose another --metrics",
                                              link::to_string(at)));
}

}  // namespace netfold::apps
