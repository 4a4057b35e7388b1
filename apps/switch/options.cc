#include "switch/options.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/log.h"
#include "link/road.h"
#include "link/socket_address.h"

namespace netfold::apps {
namespace {

constexpr int kUsageError = 2;

constexpr const char* kUnknownKey = "the configuration has no key";

constexpr const char* kDescription =
    R"(Folds gradients on their way through the network. To fold is to sum in a fixed order.

The workers of a job connect to this program, and each sends every gradient once. The
program folds the packets as they arrive, and sends the sum to each worker once. Run it
on a machine that all workers can reach, with the fastest link: each worker's link
carries one copy up and one copy down, the switch's link carries all of them.)";

constexpr const char* kExamples =
    R"(Examples:
  netfold switch
      Listens on port 7171 of all interfaces, with one thread. On the workers:
      NETFOLD_SWITCH=10.0.0.5:7171 torchrun --nnodes 2 --node-rank 0 \
          --master-addr 10.0.0.1 train.py

  netfold switch --bind 10.0.0.1 --threads 4 --cores 2,3,4,5
      Listens on one address, with four threads. Each thread has a share of the packets
      and a core of its own. One thread folds several Gbit/s; add threads when a core is
      saturated but the link is not.

  openssl rand -hex 32 > secret && chmod 600 secret
  netfold switch --secret-file secret --require-auth
      Only workers that know the secret (NETFOLD_SECRET) can join. Every packet carries
      a tag that proves it, so no other program can add to a sum.

  netfold switch --metrics 0.0.0.0:9171
      Serves counters for Prometheus at /metrics, and for `netfold top` at /stats.json.

  netfold switch --udp-port 7200 --threads 2
      Open TCP 7171 (control) and UDP 7200 and 7201 (data) in the firewall.

  netfold switch --parent 10.0.0.9:7171
      Sends the sum of its workers to the switch at 10.0.0.9 as one worker of that, and
      its answer to all of them. Start one in each rack: a link between racks then carries
      each tensor once for all workers of a rack. NETFOLD_SWITCH names on each worker the
      switch of its rack.

  netfold switch --config /etc/netfold/switch.toml
      Reads options from a TOML file: `threads = 4` is --threads 4. The command line wins.

  netfold switch --dpdk --port 0000:3b:00.0 --port 0000:3b:00.1 --port nf-port --bind 10.0.0.1
      Runs an Ethernet switch over DPDK: it folds gradients as they pass, and forwards
      every other frame by its MAC address. A port is a PCI address, a device string of
      DPDK (net_af_xdp0,iface=eth1) or a kernel interface. --bind is the address of this
      host's own interface behind one of the ports. (nf-port above is the other end of a
      veth pair; docs/how-to/run-an-ethernet-switch.md shows how to create it.)

The program prints "listening on HOST:PORT" when workers may connect, and logs to
standard error. SIGTERM stops it, with --drain-s after its jobs; Ctrl-C or a second
SIGTERM stops it at once. Workers are told. SIGHUP reads --secret-file and --log-level
again, also from --config, and stops nothing.
Exit status: 0 (stopped), 1 (failed) or 2 (wrong usage).)";

constexpr double kDrainSecondsMax = 7 * 24 * 3600;
constexpr std::uint16_t kControlPort = 7171;
constexpr std::uint16_t kFramesUdpPort = 7172;  // of the first folding thread, unless --udp-port says otherwise

// `host` as an address of sockets; :: on a machine without IPv6 is 0.0.0.0.
Result<link::Address> address_to_bind(const std::string& host, std::uint16_t port) {
  if (host == "::" || host == "[::]") return link::Address{link::all_addresses(), port};
  if (const std::size_t colon = host.find(':'); colon != std::string::npos && colon == host.rfind(':')) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--bind takes an address without a port: write --bind {} --port {}", host.substr(0, colon),
                            host.substr(colon + 1)));
  }
  const bool is_bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return link::parse_address(fmt::format("{}:{}", is_bare ? "[" + host + "]" : host, port));
}

struct Words {
  std::string bind = "::", metrics, layout = "run-to-completion";
  std::vector<std::string> protocols = {"roce", "pcie"};
  std::vector<std::string> ports;  // one is the control connections', if it is a number; the others are devices
  std::uint16_t port = kControlPort;
  bool dpdk = false, no_udp_checksum = false;
  FrameSwitchOptions frames;
  std::uint64_t memory_max_bytes = std::uint64_t{1} << 30;
};

// The error if this machine has fewer bytes, else "". The default is not checked: small machines may run with it.
std::string more_than_this_machine_has(const std::string& bytes) {
  const auto machine_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::uint64_t asked = 0;
  const bool is_number = std::from_chars(bytes.data(), bytes.data() + bytes.size(), asked).ec == std::errc();
  if (is_number && asked <= machine_bytes) return "";
  return fmt::format("this machine has {} bytes of memory, not {}", machine_bytes, bytes);
}

void declare(CLI::App& app, Words& words, SwitchOptions& options) {
  auto& server = options.server;
  app.set_version_flag("--version", std::string("netfold-switch ") + NETFOLD_VERSION);
  const auto range = [](auto least, auto most) { return CLI::Range(least, most).description(""); };  // help stays short
  const auto option = [&app](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)->type_name(type);
  };
  option("--bind", words.bind, "Address to listen at; ::: all interfaces, by IPv4 and IPv6; 0.0.0.0: all, by IPv4 only",
         "HOST")
      ->capture_default_str();
  option("--port", words.ports,
         "TCP port of control connections (7171; 0: any free port); with --dpdk also one device each", "PORT")
      ->take_all()
      ->allow_extra_args(false);
  option("--udp-port", server.data.first_port,
         "UDP port of the first thread; the next threads get the next ports; 0: the kernel picks", "PORT")
      ->capture_default_str()
      ->check(range(0, 65535));
  option("--threads", server.data.shards, "Threads that fold: 1, 2, 4, ...", "N")
      ->capture_default_str()
      ->check(range(1, 256));
  option("--cores", server.data.cores, "CPU cores to pin the threads to, such as 2,3 (default: not pinned)", "N,N,...")
      ->delimiter(',');
  option("--secret-file", options.secret_file, "File that holds the secret that workers must know", "PATH");
  option("--parent", server.parent, "The switch above: send it one sum for all workers here (default: none)",
         "HOST:PORT");
  option("--parent-secret-file", options.parent_secret_file,
         "File with the secret of the switch above (default: --secret-file)", "PATH");
  app.add_flag("--require-auth", server.require_auth, "Tag every data packet; needs --secret-file");
  option("--jobs-max", server.jobs_max, "Maximum number of jobs at once", "N")
      ->capture_default_str()
      ->check(range(1, 4096));
  option("--memory-max", words.memory_max_bytes, "Memory for the slots of all jobs, such as 512MB or 4GB", "BYTES")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Validator(more_than_this_machine_has, ""))
      ->default_str("1GB");
  option("--heartbeat-s", server.heartbeat_s, "Time between heartbeats; a worker that misses four is dead", "SECONDS")
      ->capture_default_str()
      ->check(range(control::kHeartbeatSecondsMin, control::kHeartbeatSecondsMax));
  option("--dscp", server.data.dscp, "DSCP of the packets that the switch sends, for networks that sort by it", "N")
      ->default_str("0")
      ->check(range(0, link::Road::kDscpMax));
  option("--metrics", words.metrics, "Address of the HTTP page with counters (default: no page)", "HOST:PORT");
  option("--pcap", server.data.pcap_path, "Write all data packets to PATH.0, PATH.1, ... (one file per thread)",
         "PATH");
  app.add_flag("--dpdk", words.dpdk, "Run an Ethernet switch over the devices that --port names");
  option("--layout", words.layout,
         "With --dpdk: run-to-completion, or per-port (one thread per port, and --threads that fold)", "LAYOUT")
      ->capture_default_str()
      ->check(CLI::IsMember({"run-to-completion", "per-port"}).description(""));
  option("--protocols", words.protocols,
         "With --dpdk: further protocols: roce (v1 and v2), pcie (PCIe over Ethernet), or none", "NAME,NAME")
      ->delimiter(',')
      ->default_str("roce,pcie")
      ->check(CLI::IsMember({"roce", "pcie", "none"}).description(""));
  option("--buffers", words.frames.dpdk.devices.buffers, "With --dpdk: number of frame buffers of 2 kB", "N")
      ->capture_default_str()
      ->check(range(1024, 1 << 24));
  app.add_flag("--always-poll", words.frames.plane.always_polls, "With --dpdk: poll all the time, also without work");
  app.add_flag("--no-udp-checksum", words.no_udp_checksum,
               "With --dpdk: do not compute UDP checksums; trust the checksum of the link");
  option("--eal", words.frames.dpdk.eal, "With --dpdk: an argument for DPDK itself, once for each", "ARGUMENT")
      ->allow_extra_args(false);
  option("--drain-s", options.drain_s,
         "After SIGTERM, take no new jobs, and let running jobs go on for this long; 0: stop at once", "SECONDS")
      ->capture_default_str()
      ->check(range(0.0, kDrainSecondsMax));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_config("--config", "", "TOML file with options, such as `threads = 4`; the command line wins")
      ->type_name("PATH");
  option("--log-format", options.log_format, "text, or json (an object a line)", "FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}).description(""));
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

// --port has two meanings: a number is the TCP port of control connections, everything else is a device.
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
  if (server.bind.ip.is_any() || !server.bind.ip.is_v4()) {
    return wrong(
        "--dpdk needs --bind with this host's own IPv4 address behind one of the ports: packets for it are folded, and "
        "workers connect to it (docs/how-to/run-an-ethernet-switch.md shows how to make such an interface)");
  }
  if (!server.data.pcap_path.empty())
    return wrong("--pcap is for the switch over sockets; remove it, or remove --dpdk");
  FrameSwitchOptions frames = words.frames;
  auto& plane = frames.plane;
  auto& ethernet = plane.ethernet;
  ethernet.netfold.emplace();
  ethernet.netfold->ip = server.bind.ip.v4();
  ethernet.netfold->first_port = server.data.first_port == 0 ? kFramesUdpPort : server.data.first_port;
  ethernet.netfold->jobs_max = server.jobs_max;
  ethernet.threads = server.data.shards;
  plane.cores = server.data.cores;
  plane.layout =
      words.layout == "per-port" ? switching::ThreadLayout::kPerPort : switching::ThreadLayout::kRunToCompletion;
  ethernet.parse.check_udp = !words.no_udp_checksum;
  const auto folds = [&](const char* protocol) { return std::ranges::count(words.protocols, protocol) > 0; };
  if (folds("roce")) {
    auto& roce = ethernet.roce.emplace();
    roce.held_frames_max = std::min<std::size_t>(roce.held_frames_max, frames.dpdk.devices.buffers / 4);
  }
  if (folds("pcie")) ethernet.pcie.emplace();
  frames.dpdk.devices.threads = switching::threads_of(plane, frames.dpdk.devices.ports.size());
  frames.dpdk.devices.receivers = switching::receivers_of(plane);
  // Devices and threads keep some buffers; jobs get the others.
  const std::size_t kept = frames.dpdk.devices.ports.size() * 2048 + frames.dpdk.devices.threads * 1024u;
  const std::size_t left = frames.dpdk.devices.buffers - std::min(kept, frames.dpdk.devices.buffers / 2);
  server.memory_max_bytes = std::min(server.memory_max_bytes, left * frames.dpdk.devices.room_bytes);
  frames.dpdk.on_notice = [](const std::string& text) { log::warn("{}", text); };
  options.frames = std::move(frames);
  return {};
}

// Checks options against each other, and resolves addresses and files.
Result<void> complete(Words& words, SwitchOptions& options) {
  auto& server = options.server;
  if (auto sorted = sort_ports(words); !sorted) return sorted;
  auto bind = address_to_bind(words.bind, words.port);
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
    return wrong(fmt::format("--udp-port {} leaves fewer than {} ports below 65536, one per thread",
                             server.data.first_port, server.data.shards));
  }
  if (!server.parent.empty()) {
    const auto parent = link::parse_address(server.parent);
    if (!parent) return wrong(fmt::format("--parent: {}", parent.error().message));
    if (words.dpdk && !parent->ip.is_v4()) {
      return wrong("--parent with --dpdk must be an IPv4 address: an Ethernet switch folds IPv4 only");
    }
  } else if (!options.parent_secret_file.empty()) {
    return wrong("--parent-secret-file needs a --parent");
  }
  if (server.require_auth && options.secret_file.empty()) return wrong("--require-auth needs a --secret-file");
  if (!words.metrics.empty()) {
    auto metrics = link::parse_address(words.metrics);
    if (!metrics) return wrong(fmt::format("--metrics: {}", metrics.error().message));
    options.metrics = *metrics;
  }
  if (words.dpdk) {
    if (auto completed = complete_frames(words, options); !completed) return completed;
  }
  for (const auto& [path, secret] : {std::pair(&options.secret_file, &server.secret),
                                     std::pair(&options.parent_secret_file, &server.parent_secret)}) {
    if (path->empty()) continue;
    auto content = read_secret(*path);
    if (!content) return tl::unexpected(content.error());
    *secret = std::move(*content);
  }
  return {};
}

std::string last_word(const std::string& text) {
  return text.substr(text.rfind(' ') + 1);
}

// "FILE:LINE: " if an error is about a line of the configuration file, else "". Errors name options, as "--threads", or
// keys of the file that the program does not know.
std::string place_in_config(CLI::App& app, const std::string& error, int argc, char** argv) {
  const auto path = app.get_config_ptr()->count() > 0 ? app.get_config_ptr()->as<std::string>() : "";
  const bool is_unknown_key = error.starts_with(kUnknownKey);
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string key = CLI::detail::trim_copy(line.substr(0, line.find('=')));
    if (key.empty() || key[0] == '#') continue;
    const std::string option = "--" + key;
    const bool is_on_command_line =
        std::any_of(argv, argv + argc, [&](std::string_view word) { return word.substr(0, word.find('=')) == option; });
    const bool is_meant = is_unknown_key ? error.ends_with(" " + key) : error.find(option) != std::string::npos;
    if (is_meant && !is_on_command_line) return fmt::format("{}:{}: ", path, number);
  }
  return "";
}

// Throws CLI::Success for --help and --version.
Result<SwitchOptions> read(CLI::App& app, int argc, char** argv) {
  SwitchOptions options;
  Words words;
  declare(app, words, options);
  const auto in_config = [&](Error error) {
    error.message = place_in_config(app, error.message, argc, argv) + error.message;
    return tl::unexpected(std::move(error));
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ConfigError& error) {
    return in_config({ErrorCode::kInvalidArgument, std::string(kUnknownKey) + " " + last_word(error.what()), kNoRank});
  } catch (const CLI::ParseError& error) {
    return in_config({ErrorCode::kInvalidArgument, error.what(), kNoRank});
  }
  if (auto completed = complete(words, options); !completed) return in_config(completed.error());
  return options;
}

}  // namespace

Parsed parse_command_line(int argc, char** argv) {
  CLI::App app(kDescription, "netfold switch");
  app.footer(kExamples);
  app.get_formatter()->column_width(30);
  try {
    auto options = read(app, argc, argv);
    if (options) return {std::move(*options), 0};
    std::cerr << "netfold switch: " << options.error().message << "\n";
    return {std::nullopt, options.error().code == ErrorCode::kInvalidArgument ? kUsageError : 1};
  } catch (const CLI::Success& shown) {
    return {std::nullopt, app.exit(shown)};
  }
}

Result<SwitchOptions> read_again(int argc, char** argv) {
  CLI::App app;
  return read(app, argc, argv);
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
  return secret;
}

void warn_if_others_may_read(const std::string& path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0 || (status.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  log::warn("other users of this machine may read the secret file '{}': `chmod 600 {}`", path, path);
}

}  // namespace netfold::apps
