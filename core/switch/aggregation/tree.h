// A job's place in a tree of switches (PROTOCOL.md, "Trees of switches"): its contributors, and the switch above
// it. Empty for a job of one switch.
//
// Packets carry ranks; a switch speaks under the lowest rank below it. Inside, contributors have *places*: 0, 1, ... in
// the order of their ranks, which is the order of the fold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "link/link.h"
#include "wire/lease.h"

namespace netfold::switching {

// A contributor is a worker, or a switch that stands for several ranks in a row.
struct Contributor {
  std::uint16_t first_rank = 0, ranks = 1;
  std::vector<std::uint16_t> udp_ports = {};  // of a switch, one a shard of its own; empty: a worker

  bool is_switch() const { return !udp_ports.empty(); }
  bool has(std::uint16_t rank) const { return rank >= first_rank && rank - first_rank < ranks; }
};

inline std::string name_of(const Contributor& who) {
  if (who.ranks == 1) return fmt::format("rank {}", who.first_rank);
  return fmt::format("ranks {} to {}", who.first_rank, who.first_rank + who.ranks - 1);
}

struct Above {
  wire::Lease lease;                  // as the switch above granted it: its job, epoch and key
  std::uint16_t rank = 0;             // under which this switch speaks there
  std::vector<link::Address> shards;  // the data addresses of the switch above

  link::Address address_of(std::uint32_t chunk) const { return shards[lease.shard_of(chunk)]; }
};

struct Tree {
  std::vector<Contributor> contributors;  // by place; empty: place r is the worker of rank r
  std::optional<Above> above;

  std::uint16_t rank_of(std::uint16_t place) const {
    return contributors.empty() ? place : contributors[place].first_rank;
  }
  std::string name_of(std::uint16_t place) const {
    return contributors.empty() ? fmt::format("rank {}", place) : switching::name_of(contributors[place]);
  }
  bool is_switch(std::uint16_t place) const { return !contributors.empty() && contributors[place].is_switch(); }
  bool has_switches() const {
    return std::any_of(contributors.begin(), contributors.end(), [](const auto& each) { return each.is_switch(); });
  }
  // The place of the contributor that has this rank.
  std::optional<std::uint16_t> place_of(std::uint16_t rank) const {
    const auto after = std::upper_bound(contributors.begin(), contributors.end(), rank,
                                        [](std::uint16_t of, const Contributor& each) { return of < each.first_rank; });
    if (after == contributors.begin() || !std::prev(after)->has(rank)) return std::nullopt;
    return static_cast<std::uint16_t>(after - contributors.begin() - 1);
  }
};

}  // namespace netfold::switching
