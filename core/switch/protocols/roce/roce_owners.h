// Which folding thread a RoCE connection's job belongs to, where several fold. Only a message's first frame names its
// job, so whoever receives one notes whose the connection is, and finds it for the frames that follow. All threads
// share one table; every entry is one atomic number. A connection is known by the port its frames come in at, so no
// frame from another port can change its owner.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "link/frame_port.h"

namespace netfold::switching {

class RoceOwners {
 public:
  struct Connection {
    link::PortNumber port;
    std::uint64_t to;  // Ethernet address
    std::uint32_t queue_pair;
  };

  void set(const Connection& connection, std::uint16_t thread) {
    const std::uint64_t hash = hash_of(connection);
    std::size_t place = hash % kBuckets * kWays;
    for (std::size_t way = 0; way < kWays; ++way) {
      const std::uint64_t there = entries_[place + way].load(std::memory_order_relaxed);
      if (there != 0 && !is_of(there, hash)) continue;
      if (there != entry_of(hash, thread))
        entries_[place + way].store(entry_of(hash, thread), std::memory_order_relaxed);
      return;
    }
    place += hash >> 32 & (kWays - 1);  // all taken: one goes, and its next message brings it back
    entries_[place].store(entry_of(hash, thread), std::memory_order_relaxed);
  }

  std::optional<std::uint16_t> find(const Connection& connection) const {
    const std::uint64_t hash = hash_of(connection);
    const std::size_t place = hash % kBuckets * kWays;
    for (std::size_t way = 0; way < kWays; ++way) {
      const std::uint64_t there = entries_[place + way].load(std::memory_order_relaxed);
      if (is_of(there, hash)) return static_cast<std::uint16_t>((there & 0xffff) - 1);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kBuckets = 1024, kWays = 4;

  static std::uint64_t hash_of(const Connection& it) {
    std::uint64_t hash = it.to * 0x9e37'79b9'7f4a'7c15 ^ (std::uint64_t{it.queue_pair} << 16 | it.port);
    hash = (hash ^ hash >> 31) * 0xbf58'476d'1ce4'e5b9;
    return hash ^ hash >> 29;
  }
  // 48 bits of the hash, and the thread's number and one.
  static std::uint64_t entry_of(std::uint64_t hash, std::uint16_t thread) {
    return (hash & ~0xffffULL) | (thread + 1u);
  }
  static bool is_of(std::uint64_t entry, std::uint64_t hash) { return entry != 0 && (entry ^ hash) >> 16 == 0; }

  std::array<std::atomic<std::uint64_t>, kBuckets * kWays> entries_{};  // 0: free
};

}  // namespace netfold::switching
