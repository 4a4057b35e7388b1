#include "switch/metrics.h"

#include <fmt/format.h>
#include <httplib.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace netfold::apps {
namespace {

constexpr int kStartMaxMs = 5000;

constexpr const char* kIndex =
    "Counters of a Netfold switch.\n/metrics      for Prometheus\n/stats.json   the same as JSON, for `netfold top`\n";

class HttpMetrics final : public Metrics {
 public:
  explicit HttpMetrics(const engine::SwitchServer& server) {
    http_.new_task_queue = [] { return new httplib::ThreadPool(2); };
    http_.set_read_timeout(2);
    http_.set_write_timeout(2);
    http_.set_keep_alive_timeout(2);  // an idle connection holds one of the two threads
    http_.set_payload_max_length(4096);
    http_.set_socket_options([](socket_t socket) {  // its default lets two switches share a port, unnoticed
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.Get("/metrics", [&server](const httplib::Request&, httplib::Response& response) {
      response.set_content(engine::to_prometheus(server.stats()), "text/plain; version=0.0.4");
    });
    http_.Get("/stats.json", [&server](const httplib::Request&, httplib::Response& response) {
      response.set_content(engine::to_json(server.stats()).dump() + "\n", "application/json");
    });
    http_.Get("/",
              [](const httplib::Request&, httplib::Response& response) { response.set_content(kIndex, "text/plain"); });
  }

  ~HttpMetrics() override {
    http_.stop();
    if (thread_.joinable()) thread_.join();
  }

  bool begin(link::Address at) {
    const std::string all = link::to_string(at);
    const std::string host = all.substr(0, all.rfind(':'));
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

Result<std::unique_ptr<Metrics>> Metrics::start(link::Address at, const engine::SwitchServer& server) {
  auto metrics = std::make_unique<HttpMetrics>(server);
  if (metrics->begin(at)) return metrics;
  return fail(ErrorCode::kSystem, fmt::format("cannot serve metrics at {}: another program has this port, or no "
                                              "interface this address; choose another --metrics",
                                              link::to_string(at)));
}

}  // namespace netfold::apps
