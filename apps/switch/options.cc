#include "switch/options.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include <spdlog/spdlog.h>

namespace netfold::apps {
namespace {

constexpr int kUsageError = 2;

constexpr const char* kDescription =
    R"(Folds (sums) gradients on their way through the network.

Workers of a job connect to this program and send it every gradient once; it adds
them up as packets come and sends each worker the sum, once. Run it on any box that
all workers reach, best where the network is fastest: each worker's link carries one
copy up and one copy down, the switch's link carries all of them.)";

constexpr const char* kExamples =
    R"(Examples:
  netfold switch
      On port 7171 of all interfaces, one thread. On the workers:
      NETFOLD_SWITCH=10.0.0.1:7171 torchrun ... train.py

  netfold switch --bind 10.0.0.1 --threads 4 --cores 2,3,4,5
      One address only; four threads, each with its share of the packets and a core
      of its own. One thread folds several Gbit/s; add threads when `netfold top`
      shows one core busy and the link is not full.

  openssl rand -hex 32 > secret && chmod 600 secret
  netfold switch --secret-file secret --require-auth
      Only workers that know the secret (NETFOLD_SECRET) get in, and every packet
      carries a tag that proves it; nobody else can add to a sum.

  netfold switch --metrics 0.0.0.0:9171
      Counters for Prometheus at /metrics, for `netfold top` at /stats.json.

  netfold switch --udp-port 7200 --threads 2
      Firewalls: TCP 7171 (control) and UDP 7200 and 7201 (data) must be open.

  netfold switch --dpdk --port 0000:3b:00.0 --port 0000:3b:00.1 --port nf-port --bind 10.0.0.1
      An Ethernet switch of its own, by DPDK: gradients are folded as they pass, every
      other frame is forwarded by its MAC address. A port is a PCI address, a device
      string of DPDK (net_af_xdp0,iface=eth1) or a kernel interface. --bind is the
      address of this host's own interface behind one of the ports; docs/dpdk.md shows
      how to make one (nf-port above is the other end of a veth pair).

It prints "listening on HOST:PORT" when workers may come, and logs to standard error.
Ctrl-C or SIGTERM tells the workers and stops it. Exit status: 0 stopped, 1 failed,
2 wrong usage.)";

constexpr std::uint16_t kControlPort = 7171;
constexpr std::uint16_t kFramesUdpPort = 7172;  // of the first folding thread, unless --udp-port says otherwise

struct Words {
  std::string bind = "0.0.0.0", secret_file, metrics, layout = "run-to-completion";
  std::vector<std::string> dialects = {"roce", "pcie"};
  std::vector<std::string> ports;  // one is the control connections', if it is a number; the others are devices
  std::uint16_t port = kControlPort;
  bool dpdk = false, no_udp_checksum = false;
  FrameSwitchOptions frames;
  std::uint64_t memory_max_bytes = std::uint64_t{1} << 30;
};

void declare(CLI::App& app, Words& words, SwitchOptions& options) {
  auto& server = options.server;
  app.set_version_flag("--version", std::string("netfold-switch ") + NETFOLD_VERSION);
  const auto range = [](auto least, auto most) { return CLI::Range(least, most).description(""); };  // help stays short
  const auto option = [&app](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)->type_name(type);
  };
  option("--bind", words.bind, "Address to listen at; 0.0.0.0: all interfaces", "HOST")->capture_default_str();
  option("--port", words.ports,
         "Control connections' TCP port (7171; 0: any free one); with --dpdk a device, once each", "PORT")
      ->take_all()
      ->allow_extra_args(false);
  option("--udp-port", server.data.first_port, "UDP port of the first thread, the next follow; 0: the kernel picks",
         "PORT")
      ->capture_default_str()
      ->check(range(0, 65535));
  option("--threads", server.data.shards, "Threads that fold: 1, 2, 4, ...", "N")
      ->capture_default_str()
      ->check(range(1, 256));
  option("--cores", server.data.cores, "Core of each thread, such as 2,3; without: any core", "N,N,...")
      ->delimiter(',');
  option("--secret-file", words.secret_file, "File with the secret that workers must know", "PATH");
  app.add_flag("--require-auth", server.require_auth, "Tag every data packet; needs --secret-file");
  option("--jobs-max", server.jobs_max, "Jobs at once, at most", "N")->capture_default_str()->check(range(1, 4096));
  option("--memory-max", words.memory_max_bytes, "Memory for the slots of all jobs, such as 512MB or 4GB", "BYTES")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->default_str("1GB");
  option("--heartbeat-s", server.heartbeat_s, "Time between signs of life; who misses four of them is dead", "SECONDS")
      ->capture_default_str()
      ->check(range(jobs::kHeartbeatSecondsMin, jobs::kHeartbeatSecondsMax));
  option("--metrics", words.metrics, "HTTP page with counters; without: none", "HOST:PORT");
  option("--pcap", server.data.pcap_path, "Write all data packets to PATH.0, PATH.1, ... (one a thread)", "PATH");
  app.add_flag("--dpdk", words.dpdk, "Be a switch of Ethernet frames over the devices that --port names");
  option("--layout", words.layout,
         "With --dpdk: run-to-completion, or per-port (a thread a port, and --threads that fold)", "LAYOUT")
      ->capture_default_str()
      ->check(CLI::IsMember({"run-to-completion", "per-port"}).description(""));
  option("--dialects", words.dialects,
         "With --dpdk: what else is folded: roce (RoCE v1), pcie (PCIe over Ethernet), or none", "NAME,NAME")
      ->delimiter(',')
      ->default_str("roce,pcie")
      ->check(CLI::IsMember({"roce", "pcie", "none"}).description(""));
  option("--buffers", words.frames.dpdk.devices.buffers, "With --dpdk: frame buffers, of 2 kB", "N")
      ->capture_default_str()
      ->check(range(1024, 1 << 24));
  app.add_flag("--always-poll", words.frames.plane.always_polls,
               "With --dpdk: never rest, not even with nothing to do");
  app.add_flag("--no-udp-checksum", words.no_udp_checksum, "With --dpdk: trust the link's own checksum for UDP");
  option("--eal", words.frames.dpdk.eal, "With --dpdk: a further argument for DPDK itself, once for each", "ARGUMENT")
      ->allow_extra_args(false);
  option("--log-level", options.log_level, "debug, info, warning or error", "LEVEL")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}).description(""));
}

tl::unexpected<Error> wrong(std::string what) {
  return fail(ErrorCode::kInvalidArgument, std::move(what));
}

bool is_number(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

// --port serves two masters: a number is the control connections' TCP port, everything else a device.
Result<void> sort_ports(Words& words) {
  auto& devices = words.frames.dpdk.devices.ports;
  for (const std::string& port : words.ports) {
    if (!is_number(port)) {
      devices.push_back(port);
    } else if (port.size() > 5 || std::stoul(port) > 65535) {
      return wrong(fmt::format("--port {}: a TCP port is at most 65535", port));
    } else {
      words.port = static_cast<std::uint16_t>(std::stoul(port));
    }
  }
  if (words.dpdk && devices.empty()) {
    return wrong("--dpdk needs the devices to switch between: name each with --port, such as --port 0000:3b:00.0");
  }
  if (!words.dpdk && !devices.empty()) {
    return wrong(fmt::format("--port {}: not a number; to switch frames of this device, give --dpdk too", devices[0]));
  }
  return {};
}

Result<void> complete_frames(const Words& words, SwitchOptions& options) {
  auto& server = options.server;
  if (!link::has_dpdk()) return tl::unexpected(link::open_dpdk({}).error());
  if (server.bind.ip == 0) {
    return wrong(
        "--dpdk needs --bind with this host's own address behind one of the ports: packets for it are folded, and "
        "workers connect to it (docs/dpdk.md shows how to make such an interface)");
  }
  if (!server.data.pcap_path.empty()) return wrong("--pcap is for the switch of sockets; leave it away with --dpdk");
  FrameSwitchOptions frames = words.frames;
  auto& plane = frames.plane;
  plane.ip = server.bind.ip;
  plane.first_port = server.data.first_port == 0 ? kFramesUdpPort : server.data.first_port;
  plane.threads = server.data.shards;
  plane.cores = server.data.cores;
  plane.jobs_max = server.jobs_max;
  plane.layout = words.layout == "per-port" ? engine::Layout::kPerPort : engine::Layout::kRunToCompletion;
  plane.parse.check_udp = !words.no_udp_checksum;
  const auto folds = [&](const char* dialect) { return std::ranges::count(words.dialects, dialect) > 0; };
  if (folds("roce")) {
    plane.roce.emplace();
    plane.roce->held_frames_max = std::min<std::size_t>(plane.roce->held_frames_max, frames.dpdk.devices.buffers / 4);
  }
  if (folds("pcie")) plane.pcie.emplace();
  frames.dpdk.devices.threads = engine::threads_of(plane, frames.dpdk.devices.ports.size());
  frames.dpdk.devices.receivers = engine::receivers_of(plane);
  // What devices and threads keep for themselves is not the jobs'.
  const std::size_t kept = frames.dpdk.devices.ports.size() * 2048 + frames.dpdk.devices.threads * 1024u;
  const std::size_t left = frames.dpdk.devices.buffers - std::min(kept, frames.dpdk.devices.buffers / 2);
  server.memory_max_bytes = std::min(server.memory_max_bytes, left * frames.dpdk.devices.room_bytes);
  frames.dpdk.on_notice = [](const std::string& text) { spdlog::warn("{}", text); };
  options.frames = std::move(frames);
  return {};
}

// What one option says about another, and what has to be looked up.
Result<void> complete(Words& words, SwitchOptions& options) {
  auto& server = options.server;
  if (auto sorted = sort_ports(words); !sorted) return sorted;
  auto bind = link::parse_address(fmt::format("{}:{}", words.bind, words.port));
  if (!bind) return tl::unexpected(bind.error());
  server.bind = *bind;
  server.memory_max_bytes = words.memory_max_bytes;
  if (!std::has_single_bit(server.data.shards)) {
    return wrong(fmt::format("--threads {}: it must be a power of two, such as {}", server.data.shards,
                             std::bit_floor(server.data.shards)));
  }
  if (!words.dpdk && !server.data.cores.empty() && server.data.cores.size() != server.data.shards) {
    return wrong(fmt::format("--cores names {} cores for {} threads: name one for each", server.data.cores.size(),
                             server.data.shards));
  }
  if (server.data.first_port != 0 && server.data.first_port + server.data.shards > 65536) {
    return wrong(fmt::format("--udp-port {} leaves no room for {} threads below port 65536", server.data.first_port,
                             server.data.shards));
  }
  if (server.require_auth && words.secret_file.empty()) return wrong("--require-auth needs a --secret-file");
  if (!words.metrics.empty()) {
    auto metrics = link::parse_address(words.metrics);
    if (!metrics) return wrong(fmt::format("--metrics: {}", metrics.error().message));
    options.metrics = *metrics;
  }
  if (words.dpdk) {
    if (auto completed = complete_frames(words, options); !completed) return completed;
  }
  if (words.secret_file.empty()) return {};
  auto secret = read_secret(words.secret_file);
  if (!secret) return tl::unexpected(secret.error());
  server.secret = std::move(*secret);
  return {};
}

}  // namespace

Parsed parse_command_line(int argc, char** argv) {
  SwitchOptions options;
  Words words;
  CLI::App app(kDescription, "netfold switch");
  app.footer(kExamples);
  app.get_formatter()->column_width(30);
  declare(app, words, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error) == 0 ? 0 : kUsageError};
  }
  if (auto completed = complete(words, options); !completed) {
    std::cerr << "netfold switch: " << completed.error().message << "\n";
    return {std::nullopt, completed.error().code == ErrorCode::kInvalidArgument ? kUsageError : 1};
  }
  return {std::move(options), 0};
}

Result<std::string> read_secret(const std::string& path) {
  struct stat status {};
  std::ifstream file(path, std::ios::binary);
  const bool is_there = stat(path.c_str(), &status) == 0;
  const std::string why = is_there && S_ISDIR(status.st_mode) ? "it is a folder" : std::strerror(errno);
  if (!file || !is_there || S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::kSystem, fmt::format("cannot read the secret file '{}': {}; give a file that this user may "
                                                "read, made for example by `openssl rand -hex 32 > {}`",
                                                path, why, path));
  }
  std::string secret{std::istreambuf_iterator<char>(file), {}};
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) {
    return fail(ErrorCode::kSystem, fmt::format("the secret file '{}' is empty: fill it, for example by `openssl rand "
                                                "-hex 32 > {}`",
                                                path, path));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    spdlog::warn("other users of this machine may read the secret file '{}': `chmod 600 {}`", path, path);
  }
  return secret;
}

}  // namespace netfold::apps
