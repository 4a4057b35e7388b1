// A stream link carries bytes to one peer and back, in order and without loss. This page is the whole contract; tcp/
// and shm/ implement it. Its user writes straight into the link's memory and reads straight out of it, so that a
// number is encoded into, and folded out of, the very memory that travels.
//
// One thread uses a link. Nothing here blocks.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace netfold::link {

struct StreamStats {
  std::uint64_t sent_bytes = 0, received_bytes = 0;
};

class StreamLink {
 public:
  virtual ~StreamLink() = default;

  // Room to write into, in one piece; empty if the link is full. commit() sends its first `bytes`, at the latest when
  // flush() is called.
  virtual std::span<std::byte> writable() = 0;
  virtual void commit(std::size_t bytes) = 0;

  // The bytes that have arrived and were not consumed, in one piece; may be empty. consume() drops its first `bytes`,
  // and the peer may send as much more, at the latest when flush() is called.
  virtual std::span<const std::byte> readable() = 0;
  virtual void consume(std::size_t bytes) = 0;

  // Hands on what was committed and consumed, and wakes the peer if it sleeps for that.
  virtual void flush() = 0;
  // True if bytes that were committed are still here, waiting for flush() to be called again.
  virtual bool has_unsent() const { return false; }

  // Before its user sleeps: from now on the peer wakes it when there is data, or room. True if there is some already,
  // and it must not sleep.
  virtual bool arm(bool for_data, bool for_room) = 0;
  // From now on at most so many bytes/s leave by each connection; 0: as many as the peer takes. A link without a
  // network takes no notice.
  virtual void pace(double /*bytes_s*/) {}

  // A descriptor to poll as well; nothing if waking works in another way.
  virtual void add_polls(std::vector<pollfd>&) const {}

  // Bytes committed, and consumed, since the link was made: a byte has the same position at both ends.
  virtual std::uint64_t committed() const = 0;
  virtual std::uint64_t consumed() const = 0;

  // The reason why no more bytes will arrive. Bytes that have arrived can still be read.
  virtual const std::optional<std::string>& ended() const = 0;

  virtual const char* kind() const = 0;  // "tcp", "shm"
  virtual const StreamStats& stats() const = 0;
};

}  // namespace netfold::link
