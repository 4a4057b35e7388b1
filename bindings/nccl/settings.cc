#include "settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/comma_list.h"
#include "link/tcp/tcp_stream.h"

namespace netfold::nccl {
namespace {

// NCCL itself never gives up on a rank that computes for long. A rank that dies is noticed at once all the same.
constexpr double kTimeoutS = 1800, kConnectTimeoutS = 30;
constexpr int kStreams = 4;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

tl::unexpected<Error> refuse(const char* name, const std::string& value, const std::string& rule) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}={} is not usable: {}", name, value, rule));
}

template <class Number>
Result<void> read_number(const char* name, Number most, const char* rule, Number& number) {
  const std::string text = variable(name);
  if (text.empty()) return {};
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && read_to == end && number > 0 && number <= most) return {};
  return refuse(name, text, rule);
}

Result<void> read_format(numbers::Format& format) {
  using numbers::Format;
  constexpr std::array<std::pair<const char*, Format>, 5> known{{{"", Format::kFp32},
                                                                 {"fp32", Format::kFp32},
                                                                 {"fp16", Format::kFp16},
                                                                 {"bf16", Format::kBf16},
                                                                 {"bfp", Format::kBfp}}};
  const std::string text = variable("NETFOLD_FORMAT");
  for (const auto& [name, found] : known) {
    if (text == name) return format = found, Result<void>{};
  }
  return refuse("NETFOLD_FORMAT", text, "choose one of fp32, fp16, bf16, bfp");
}

}  // namespace

Result<Settings> read_settings() {
  constexpr const char* kSeconds = "give a positive number of seconds";
  const std::string streams_rule = fmt::format("give a number of connections, 1 to {}", link::kTcpStreamsMax);
  double timeout_s = kTimeoutS, connect_timeout_s = kConnectTimeoutS;
  Settings settings;
  settings.streams = kStreams;
  for (const auto& read :
       {read_number("NETFOLD_TIMEOUT_S", 1e9, kSeconds, timeout_s),
        read_number("NETFOLD_CONNECT_TIMEOUT_S", 1e9, kSeconds, connect_timeout_s),
        read_number("NETFOLD_TCP_STREAMS", link::kTcpStreamsMax, streams_rule.c_str(), settings.streams),
        read_format(settings.floats)}) {
    if (!read) return tl::unexpected(read.error());
  }
  settings.timeout = from_seconds(timeout_s);
  settings.connect_timeout = from_seconds(connect_timeout_s);
  const std::string switches = variable("NETFOLD_SWITCH");
  if (!switches.empty()) settings.switches = comma_list(switches);
  if (std::ranges::any_of(settings.switches, &std::string::empty)) {
    return refuse("NETFOLD_SWITCH", switches, "write host:port, or several with commas");
  }
  settings.secret_text = variable("NETFOLD_SECRET");
  settings.secret = control::Secret::from(settings.secret_text);
  const std::string auth = variable("NETFOLD_REQUIRE_AUTH");
  settings.requires_auth = auth == "yes" || auth == "1" || auth == "true";
  if (!settings.requires_auth && !auth.empty() && auth != "no" && auth != "0" && auth != "false") {
    return refuse("NETFOLD_REQUIRE_AUTH", auth, "write yes or no");
  }
  if (settings.requires_auth && !settings.secret) {
    return refuse("NETFOLD_REQUIRE_AUTH", auth,
                  "tags need a secret: set NETFOLD_SECRET, too, to the same on all ranks");
  }
  settings.interfaces = variable("NCCL_SOCKET_IFNAME");
  return settings;
}

}  // namespace netfold::nccl
