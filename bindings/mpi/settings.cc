#include "settings.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

namespace netfold::mpi {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Number>
bool read(const std::string& text, Number& number) {
  return std::from_chars(text.data(), text.data() + text.size(), number).ptr == text.data() + text.size();
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.algorithm = variable("NETFOLD_ALGORITHM");
  settings.bind = variable("NETFOLD_BIND");
  settings.roce = variable("NETFOLD_ROCE");
  settings.nic = variable("NETFOLD_NIC");
  settings.secret = variable("NETFOLD_SECRET");
  settings.interfaces = variable("NETFOLD_INTERFACE");
  const auto refuse = [&](const char* name, const std::string& value, const char* rule) {
    settings.error = fmt::format("{}={} is not usable: {}", name, value, rule);
  };
  if (settings.algorithm == "auto") settings.algorithm.clear();
  if (!settings.roce.empty()) {
    if (settings.algorithm == "in-network") settings.algorithm.clear();  // what RoCE does
    if (!settings.algorithm.empty()) {
      refuse("NETFOLD_ALGORITHM", settings.algorithm, "with NETFOLD_ROCE a switch folds: unset one of them");
    }
  } else if (settings.algorithm == "in-network") {
    refuse(
        "NETFOLD_ALGORITHM", settings.algorithm,
        "MPI programs fold among their ranks, or with NETFOLD_ROCE through a switch: name a host algorithm, or auto");
  }
  if (settings.nic == "simulated") {
    refuse("NETFOLD_NIC", settings.nic, "start a NIC with `netfold rtl nic SOCKET`, and name its socket here");
  } else if (!settings.nic.empty() && !settings.roce.empty()) {
    refuse("NETFOLD_NIC", settings.nic, "with NETFOLD_ROCE a switch folds: unset one of them");
  } else if (!settings.nic.empty() && !settings.algorithm.empty() && settings.algorithm != "ring") {
    refuse("NETFOLD_ALGORITHM", settings.algorithm, "NETFOLD_NIC folds in a ring of NICs: unset one of them");
  } else if (!settings.nic.empty()) {
    settings.algorithm = "ring";  // on communicators without the NICs, too: their sums have the same bits
  }
  if (const auto value = variable("NETFOLD_MPI"); value == "off") {
    settings.is_on = false;
  } else if (!value.empty() && value != "on") {
    refuse("NETFOLD_MPI", value, "write on or off");
  }
  if (const auto value = variable("NETFOLD_FORMAT"); value == "fp16") {
    settings.format = NF_AS_FLOAT16;
  } else if (value == "bf16") {
    settings.format = NF_AS_BFLOAT16;
  } else if (value == "bfp" || value == "bfp16") {
    settings.format = NF_AS_BFP;
  } else if (!value.empty() && value != "fp32") {
    refuse("NETFOLD_FORMAT", value, "choose one of fp32, fp16, bf16, bfp");
  }
  if (const auto value = variable("NETFOLD_MPI_MIN_BYTES"); !value.empty() && !read(value, settings.min_bytes)) {
    refuse("NETFOLD_MPI_MIN_BYTES", value, "write a number of bytes");
  }
  if (const auto value = variable("NETFOLD_TIMEOUT_S");
      !value.empty() && !(read(value, settings.timeout_s) && settings.timeout_s > 0 && settings.timeout_s < 1e9)) {
    refuse("NETFOLD_TIMEOUT_S", value, "give a positive number of seconds");
  }
  if (const auto value = variable("NETFOLD_REQUIRE_AUTH"); value == "yes" || value == "1" || value == "true") {
    settings.requires_auth = true;
    if (!settings.roce.empty()) refuse("NETFOLD_REQUIRE_AUTH", value, "RoCE has no tags: unset it or NETFOLD_ROCE");
    if (!settings.nic.empty()) {
      refuse("NETFOLD_REQUIRE_AUTH", value, "smart NICs send no tags: unset it or NETFOLD_NIC");
    }
  } else if (!value.empty() && value != "no" && value != "0" && value != "false") {
    refuse("NETFOLD_REQUIRE_AUTH", value, "write yes or no");
  }
  if (const auto value = variable("NETFOLD_TCP_STREAMS");
      !value.empty() && !(read(value, settings.tcp_streams) && settings.tcp_streams > 0)) {
    refuse("NETFOLD_TCP_STREAMS", value, "give a number of connections, 1 to 16");
  }
  if (const auto value = variable("NETFOLD_DSCP"); !value.empty() && !read(value, settings.dscp)) {
    refuse("NETFOLD_DSCP", value, "give a number, 0 to 63");
  }
  if (const auto value = variable("NETFOLD_LOG"); value == "info" || value == "debug") settings.is_talkative = true;
  return settings;
}

std::uint64_t digest_of(const Settings& settings) {
  const std::string text = fmt::format("{} {} {} {} {} {} {}", settings.is_on, settings.min_bytes, settings.algorithm,
                                       static_cast<int>(settings.format), settings.roce.empty(), settings.nic.empty(),
                                       settings.requires_auth);
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a: equal on every machine
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

}  // namespace netfold::mpi
