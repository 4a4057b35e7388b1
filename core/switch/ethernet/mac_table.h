// Which port an Ethernet address was last seen at: a switch's forwarding table (the Port Learning Stage of
// allreduce-switch, section IV-B). It learns from source addresses, forgets what has been silent for a time, and never
// grows. All threads of a switch share one: every entry is one atomic number, so a reader sees an old or a new entry,
// never a mixture.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "link/frame_port.h"
#include "switch/ethernet/mac_address.h"

namespace netfold::switching {

struct MacTableOptions {
  std::uint32_t entries_max = 8192;  // rounded up to a power of two, at least 64
  Nanoseconds age_max = 300 * kSecond;
};

class MacTable {
 public:
  using Options = MacTableOptions;

  explicit MacTable(Options options = {});

  // `address` (not a group's) sent something into `port`. A known address may have moved; where a bucket is full, its
  // oldest entry goes.
  void learn(MacAddress address, link::PortNumber port, Nanoseconds now);
  // link::kNoPort if it is unknown, or was seen too long ago: flood.
  link::PortNumber find(MacAddress address, Nanoseconds now) const;
  void forget_port(link::PortNumber port);  // it went down

  struct Entry {
    MacAddress address;
    link::PortNumber port;
    Nanoseconds age;
  };
  std::vector<Entry> entries(Nanoseconds now) const;  // those still valid, in no order
  std::size_t capacity() const { return buckets_.size() * kWays; }
  std::uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }
  std::uint64_t pushed_out() const { return pushed_out_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kWays = 4;
  // `seen` is in ticks; address and port of a stamp may change under a reader. It then takes a new entry for as old as
  // the one that it replaced, or the reverse. The frame is flooded, or sent to the previous port.
  struct alignas(64) Bucket {
    std::atomic<std::uint64_t> key[kWays];  // address << 16 | port; 0: free
    std::atomic<std::uint32_t> seen[kWays];
  };

  Bucket& bucket_of(MacAddress address) const;
  bool is_valid(std::uint32_t seen, std::uint32_t tick) const { return tick - seen <= age_max_ticks_; }
  static std::uint32_t tick_of(Nanoseconds now) { return static_cast<std::uint32_t>(now >> 26); }  // 67 ms

  std::uint32_t age_max_ticks_;
  mutable std::vector<Bucket> buckets_;
  std::atomic<std::uint64_t> moved_{0}, pushed_out_{0};
};

}  // namespace netfold::switching
