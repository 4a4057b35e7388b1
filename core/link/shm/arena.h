// Memory that all ranks of one machine map. Each writes its own part (counters, and buffers for chunks) and reads the
// others'. The counters say when a rank may write or read a buffer.
//
// A chunk has a number, counted alike by all ranks, and uses the room `number % kRooms` of every part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace netfold::link {

class Arena {
 public:
  static constexpr std::size_t kRooms = 4;        // chunks on their way at once
  static constexpr std::size_t kNoteBytes = 64;   // what goes with a contribution
  static constexpr std::size_t kRemembered = 64;  // notes about the last so many operations of a rank

  // In chunks, of one rank. Only that rank writes them.
  struct Counters {
    alignas(64) std::atomic<std::uint64_t> submitted;   // it wants to have summed
    std::atomic<std::uint64_t> contributed;             // it has written
    std::atomic<std::uint64_t> folded;                  // its segment's sum is written; others' chunks have been read
    std::atomic<std::uint64_t> taken;                   // it has read the others' sums
    alignas(64) std::atomic<std::uint64_t> operations;  // it has begun, with a note each; not read while all proceed
    alignas(64) std::atomic<std::uint32_t> sleeps;      // and asks to be woken when it can go on
    alignas(64) std::atomic<int> core{-1};              // it was on when it last waited
  };

  struct Shape {
    std::size_t contribution_bytes = 0, sum_bytes = 0;  // of a room; multiples of 64
  };

  // For `world` ranks. Null if the machine has no room for it.
  static std::unique_ptr<Arena> create(int world, Shape shape);
  // The arena that another rank created, by its descriptor, which is closed. Null if there is no arena, if it is not
  // one for this number of ranks, or if it cannot be mapped.
  static std::unique_ptr<Arena> map(int descriptor, int world);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int descriptor() const { return descriptor_; }  // while it has not been forgotten; -1 where it was mapped
  void forget_descriptor();
  int world() const { return world_; }

  Counters& counters(int rank) const { return *reinterpret_cast<Counters*>(part(rank)); }
  std::byte* operation_note(int rank, std::uint64_t number) const;
  std::byte* chunk_note(int rank, std::uint64_t chunk) const;
  std::byte* contribution(int rank, std::uint64_t chunk) const;
  std::byte* sum(int rank, std::uint64_t chunk) const;

 private:
  Arena(std::byte* data, int world, Shape shape, int descriptor)
      : data_(data), world_(world), shape_(shape), descriptor_(descriptor) {}
  static std::unique_ptr<Arena> map_open(int descriptor, int world);
  std::byte* part(int rank) const;

  std::byte* data_;
  int world_;
  Shape shape_;
  int descriptor_;
};

}  // namespace netfold::link
