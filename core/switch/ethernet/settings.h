// The settings of a folding switch that may change while it runs (allreduce-switch, section IV-F): which ports fold,
// and the element type for protocols whose frames do not state one. Every thread reads it, control threads write it; a
// change holds from the next frame on and disturbs nothing else.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "link/frame_port.h"

namespace netfold::switching {

struct Settings {
  std::atomic<std::uint64_t> folding_ports{~std::uint64_t{0}};  // a bit each
  std::atomic<bool> adds_floats{false};                         // else int32; Netfold's own packets name their format
  // Where the switch above is, of a switch of RoCE workers that is a leaf of a tree; link::kNoPort: it is not a leaf.
  std::atomic<link::PortNumber> uplink{link::kNoPort};

  bool folds(link::PortNumber port) const {
    return (folding_ports.load(std::memory_order_relaxed) >> (port & 63) & 1) != 0;
  }
};

// The same as the two registers of the paper's hardware (table VII).
struct Registers {
  std::uint32_t agg_mode = 0;      // {31'h0, agg_mode}: 1 adds floats
  std::uint32_t agg_port_cfg = 0;  // {agg_port_num[4:0], 1'b0, agg_port_en[25:0]}
};

// `ports`: how many the switch has. Registers hold the first 26, and a number of ports below 32.
inline Registers registers_of(const Settings& settings, std::size_t ports) {
  constexpr std::uint64_t kEnableMask = (1u << 26) - 1;
  const std::uint64_t there = ports >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ports) - 1;
  const auto enabled = settings.folding_ports.load(std::memory_order_relaxed) & there & kEnableMask;
  const auto number = static_cast<std::uint32_t>(std::popcount(enabled));
  return {settings.adds_floats.load(std::memory_order_relaxed) ? 1u : 0u,
          number << 27 | static_cast<std::uint32_t>(enabled)};
}

}  // namespace netfold::switching
