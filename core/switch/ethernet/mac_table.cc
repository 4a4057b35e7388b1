#include "switch/ethernet/mac_table.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace netfold::switching {
namespace {

constexpr std::uint64_t key_of(MacAddress address, link::PortNumber port) {
  return address.number << 16 | port;
}

}  // namespace

MacTable::MacTable(Options options)
    : age_max_ticks_(std::max(1u, tick_of(options.age_max))),
      buckets_(std::bit_ceil(std::max(64u, options.entries_max)) / kWays) {}

MacTable::Bucket& MacTable::bucket_of(MacAddress address) const {
  // Multiplicative hashing: the top bits of the product depend on all bits of the address.
  const std::uint64_t hash = address.number * 0x9e37'79b9'7f4a'7c15u;
  return buckets_[hash >> (64 - std::countr_zero(buckets_.size()))];
}

void MacTable::learn(MacAddress address, link::PortNumber port, Nanoseconds now) {
  assert(!address.is_group());
  const std::uint32_t tick = tick_of(now);
  Bucket& bucket = bucket_of(address);
  const std::uint64_t key = key_of(address, port);
  std::size_t victim = 0;
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::uint64_t there = bucket.key[way].load(std::memory_order_relaxed);
    if (there == key) {  // nearly always; nothing is written but once a tick
      if (bucket.seen[way].load(std::memory_order_relaxed) != tick) {
        bucket.seen[way].store(tick, std::memory_order_relaxed);
      }
      return;
    }
    if (there >> 16 == address.number) {
      moved_.fetch_add(1, std::memory_order_relaxed);
      bucket.seen[way].store(tick, std::memory_order_relaxed);
      bucket.key[way].store(key, std::memory_order_relaxed);
      return;
    }
    const auto age = [&](std::size_t i) {
      return bucket.key[i].load(std::memory_order_relaxed) == 0 ? UINT32_MAX
                                                                : tick - bucket.seen[i].load(std::memory_order_relaxed);
    };
    if (age(way) > age(victim)) victim = way;
  }
  const std::uint64_t before = bucket.key[victim].load(std::memory_order_relaxed);
  if (before != 0 && is_valid(bucket.seen[victim].load(std::memory_order_relaxed), tick)) {
    pushed_out_.fetch_add(1, std::memory_order_relaxed);
  }
  bucket.seen[victim].store(tick, std::memory_order_relaxed);
  bucket.key[victim].store(key, std::memory_order_relaxed);
}

link::PortNumber MacTable::find(MacAddress address, Nanoseconds now) const {
  const Bucket& bucket = bucket_of(address);
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::uint64_t key = bucket.key[way].load(std::memory_order_relaxed);
    if (key >> 16 == address.number && key != 0) {
      return is_valid(bucket.seen[way].load(std::memory_order_relaxed), tick_of(now))
                 ? static_cast<link::PortNumber>(key)
                 : link::kNoPort;
    }
  }
  return link::kNoPort;
}

void MacTable::forget_port(link::PortNumber port) {
  for (Bucket& bucket : buckets_) {
    for (auto& slot : bucket.key) {
      std::uint64_t key = slot.load(std::memory_order_relaxed);
      if (key != 0 && static_cast<link::PortNumber>(key) == port) slot.compare_exchange_strong(key, 0);
    }
  }
}

std::vector<MacTable::Entry> MacTable::entries(Nanoseconds now) const {
  std::vector<Entry> all;
  const std::uint32_t tick = tick_of(now);
  for (const Bucket& bucket : buckets_) {
    for (std::size_t way = 0; way < kWays; ++way) {
      const std::uint64_t key = bucket.key[way].load(std::memory_order_relaxed);
      const std::uint32_t seen = bucket.seen[way].load(std::memory_order_relaxed);
      if (key == 0 || !is_valid(seen, tick)) continue;
      all.push_back({{key >> 16}, static_cast<link::PortNumber>(key), Nanoseconds{tick - seen} << 26});
    }
  }
  return all;
}

}  // namespace netfold::switching
