// A queue in memory that two processes share: one writes it, one reads it. Positions only grow; a position modulo the
// size is a place. Each side keeps its own position to itself and only publishes it, so no process reads or writes
// outside of the ring, whatever the other does to the shared memory. The reader must check what it reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace netfold::group {

template <class Entry, std::size_t kPlaces>
struct Ring {
  static_assert(std::is_trivially_copyable_v<Entry> && (kPlaces & (kPlaces - 1)) == 0);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  alignas(64) std::atomic<std::uint64_t> written;        // up to here, by the writer
  alignas(64) std::atomic<std::uint64_t> read;           // up to here, by the reader
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;  // and wants its bell rung
  alignas(64) Entry entries[kPlaces];
};

template <class Entry, std::size_t kPlaces>
class RingWriter {
 public:
  explicit RingWriter(Ring<Entry, kPlaces>& ring) : ring_(ring) {}

  // False if the ring is full, or the reader claims to have read what was never written.
  bool push(const Entry& entry) {
    if (position_ - ring_.read.load(std::memory_order_acquire) >= kPlaces) return false;
    ring_.entries[position_ % kPlaces] = entry;
    ring_.written.store(++position_, std::memory_order_release);
    return true;
  }

  // After push(): whether the reader's bell must be rung. The fence puts the new position before the look at the flag;
  // RingReader::may_sleep does the opposite. One of the two sides sees what the other did, so no ring is lost.
  bool reader_sleeps() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ring_.reader_sleeps.load(std::memory_order_relaxed) != 0 && ring_.reader_sleeps.exchange(0) != 0;
  }

 private:
  Ring<Entry, kPlaces>& ring_;
  std::uint64_t position_ = 0;
};

template <class Entry, std::size_t kPlaces>
class RingReader {
 public:
  explicit RingReader(Ring<Entry, kPlaces>& ring) : ring_(ring) {}

  // A copy, which the writer cannot change any more. Empty if there is nothing, or is_broken().
  std::optional<Entry> pop() {
    const std::uint64_t waiting = ring_.written.load(std::memory_order_acquire) - position_;
    if (waiting > kPlaces) is_broken_ = true;
    if (waiting == 0 || is_broken_) return std::nullopt;
    const Entry entry = ring_.entries[position_ % kPlaces];
    ring_.read.store(++position_, std::memory_order_release);
    return entry;
  }

  // The writer claims to have written more than fits.
  bool is_broken() const { return is_broken_; }

  // Before sleeping: asks for the bell. False if there is something already.
  bool may_sleep() {
    ring_.reader_sleeps.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ring_.written.load(std::memory_order_acquire) == position_;
  }

 private:
  Ring<Entry, kPlaces>& ring_;
  std::uint64_t position_ = 0;
  bool is_broken_ = false;
};

}  // namespace netfold::group
