// The arguments by which a rank opens its group or joins a job, for Python: declared once for every engine that can run
// it. An engine adds arguments of its own behind them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "group/via_peers/peer_group.h"
#include "group/via_switch/switch_group.h"
#include "group_calls.h"

namespace netfold {

inline std::uint8_t dscp_of(int dscp) {
  if (dscp < 0 || dscp > link::Road::kDscpMax) throw nanobind::value_error("a dscp is a number from 0 to 63");
  return static_cast<std::uint8_t>(dscp);
}

// __init__ of a rank among others. `open` takes the options and the engine's own arguments (of types Own, named by
// `about`), and returns what `Bound` is made of.
template <class... Own, class Bound, class Open, class... About>
void bind_open(nb::class_<Bound>& bound, Open open, const About&... about) {
  using namespace nb::literals;
  bound.def(
      "__init__",
      [open](Bound* self, int rank, int world, const std::string& listen, double timeout_s, bool shm, int tcp_streams,
             const std::string& secret, bool require_auth, int dscp, const std::vector<std::string>& interfaces,
             bool elastic, Own... own) {
        const group::PeerGroupOptions options{.rank = rank,
                                              .world = world,
                                              .listen = listen,
                                              .timeout_s = timeout_s,
                                              .shm = shm,
                                              .tcp_streams = tcp_streams,
                                              .interfaces = interfaces,
                                              .dscp = dscp_of(dscp),
                                              .secret = secret,
                                              .require_auth = require_auth,
                                              .elastic = elastic};
        auto opened = without_lock([&] { return open(options, own...); });
        new (self) Bound(std::move(*opened));
      },
      "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0, "shm"_a = true,
      "tcp_streams"_a = 1, "secret"_a = "", "require_auth"_a = false, "dscp"_a = 0,
      "interfaces"_a = std::vector<std::string>{}, "elastic"_a = false, about...);
}

// The options that a worker and an observer of a job at a switch both have; the others are defaults.
inline group::JoinOptions join_options(const std::string& switch_address, const std::string& job, std::uint16_t world,
                                       const std::string& secret, bool require_auth, double timeout_s,
                                       double connect_timeout_s, int block, int mantissa) {
  group::JoinOptions options;
  options.switch_address = switch_address;
  options.job = job;
  options.world = world;
  options.secret = secret;
  options.require_auth = require_auth;
  options.timeout_s = timeout_s;
  options.connect_timeout_s = connect_timeout_s;
  options.bfp = bfp_shape_of(block, mantissa);
  options.keep_going = &no_signal_came;
  return options;
}

// __init__ of a worker of a job at a switch, in the same way.
template <class... Own, class Bound, class Join, class... About>
void bind_join(nb::class_<Bound>& bound, Join join, const About&... about) {
  using namespace nb::literals;
  bound.def(
      "__init__",
      [join](Bound* self, const std::string& switch_address, const std::string& job, std::uint16_t world,
             std::uint16_t rank, const std::string& secret, bool require_auth, double timeout_s,
             double connect_timeout_s, std::uint32_t window, int block, int mantissa, const std::string& faults,
             const std::string& pcap, const std::string& place, int dscp, const std::string& interface, Own... own) {
        group::SwitchGroupOptions options;
        static_cast<group::JoinOptions&>(options) = join_options(switch_address, job, world, secret, require_auth,
                                                                 timeout_s, connect_timeout_s, block, mantissa);
        options.switch_place = place;
        options.road = {dscp_of(dscp), interface};
        options.rank = rank;
        options.window = window;
        options.faults = faults;
        options.pcap_path = pcap;
        auto joined = without_lock([&] { return join(options, own...); });
        new (self) Bound(std::move(*joined));
      },
      "switch"_a, "job"_a, "world"_a, "rank"_a, nb::kw_only(), "secret"_a = "", "require_auth"_a = false,
      "timeout_s"_a = 30.0, "connect_timeout_s"_a = 30.0, "window"_a = 0, "block"_a = 16, "mantissa"_a = 7,
      "faults"_a = "", "pcap"_a = "", "place"_a = "", "dscp"_a = 0, "interface"_a = "", about...);
}

}  // namespace netfold
