// How the bytes of a stream are shared out among several connections. Each piece, a stripe, says its position; so any
// connection can carry any stripe, in any order, and one that is in doubt can be sent again. Nothing here does I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/clock.h"

namespace netfold::link {

constexpr std::uint32_t kStripeBytesMax = 64 << 10;

// Before the bytes of each stripe.
struct StripeHeader {
  static constexpr std::uint32_t kMagic = 0x5453464e;  // "NFST"
  std::uint64_t position = 0;                          // of its first byte in the stream
  std::uint32_t size = 0;                              // bytes; 1 to kStripeBytesMax
  std::uint32_t magic = kMagic;

  bool is_valid() const {
    return magic == kMagic && size > 0 && size <= kStripeBytesMax && position <= UINT64_MAX - size;
  }
};
constexpr std::size_t kStripeHeaderBytes = sizeof(StripeHeader);
static_assert(kStripeHeaderBytes == 16);

// Bytes of a stream, by position.
struct Range {
  std::uint64_t from = 0, to = 0;

  std::uint64_t size() const { return to - from; }
  bool is_empty() const { return from == to; }
};

// Which bytes of a stream have arrived. They may come in any order, and more than once.
class Arrivals {
 public:
  void add(Range range);
  std::uint64_t whole() const { return whole_; }  // all bytes before this one have arrived

 private:
  std::uint64_t whole_ = 0;
  std::map<std::uint64_t, std::uint64_t> beyond_;  // apart from each other and from whole_: begin, end
};

// How fast a connection is, from the kernel's counts of what was confirmed and of the time in which it had something to
// send.
class Speed {
 public:
  void note(std::uint64_t confirmed_bytes, Nanoseconds busy);
  // It was given nothing for a while, because it was slow. It may be faster now.
  void hope() { bytes_s_ *= 1.25; }
  // Bytes/s; 0: not known yet.
  double bytes_s() const { return bytes_s_; }

 private:
  struct Counts {
    std::uint64_t confirmed_bytes = 0;
    Nanoseconds busy = 0;
  };
  std::optional<Counts> since_;
  double bytes_s_ = 0;
};

// A connection that may carry the next stripe.
struct Way {
  std::size_t index = 0;
  std::uint64_t queued_bytes = 0;  // that it was given, and that have not been confirmed
  double bytes_s = 0;              // 0: not known
};

// The place in `ways`, not empty, of the one that would have carried `size` bytes more before all others would. A way
// that is much slower than the rest gets nothing then; its turn comes when the others have long queues. As long as the
// speed of one is not known, all count as equally fast.
std::size_t earliest(std::span<const Way> ways, std::uint64_t size);

}  // namespace netfold::link
