// Messages over several TCP connections to one peer, in one direction. A message is cut into chunks, and each chunk
// takes the connection that has room next, so a slow connection holds up nothing but its own chunks. A header before
// each chunk says where its bytes belong. The receiver reads them straight into the buffer that was posted for them;
// while none is posted, it leaves them with the kernel, which holds the sender back. With NETFOLD_REQUIRE_AUTH a tag
// follows each chunk, and a message has come only when the tags of all its chunks were right.
//
// The caller's thread does the work, in test(): NCCL calls it until a request is done. Nothing here blocks.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "interface.h"
#include "link/descriptor.h"
#include "link/tags.h"

namespace netfold::nccl {

class Stripes;

struct Request {
  Stripes* owner = nullptr;
  bool is_busy = false;
  std::byte* data = nullptr;
  std::size_t bytes = 0;   // of the message; of the buffer until the first header has said what the message has
  bool is_sized = false;   // it has
  std::size_t dealt = 0;   // how much of it is in chunks that have a connection
  std::size_t moved = 0;   // in chunks that have left, or come, entirely
  bool has_moved = false;  // at least one chunk has: a message may be empty
  bool is_whole() const { return has_moved && moved == bytes; }
};

// Where a chunk's bytes belong: big-endian numbers on the wire.
struct ChunkHeader {
  static constexpr std::size_t kBytes = 32;
  std::uint64_t message = 0, message_bytes = 0, offset = 0;
  std::uint32_t bytes = 0;
};

// The common part of both directions: the requests in flight, and when a peer counts as dead.
class Stripes {
 public:
  // Null `tags`: chunks without.
  Stripes(std::vector<link::Descriptor> sockets, std::unique_ptr<link::Tags> tags, std::string peer,
          Nanoseconds timeout);
  virtual ~Stripes() = default;
  Stripes(const Stripes&) = delete;
  Stripes& operator=(const Stripes&) = delete;

  // A message to send, or a buffer for the next one that comes. Null while kRequestsMax are in flight.
  Request* post(void* data, std::size_t bytes);
  // Does what can be done at once. True once: the request is done, `moved` is its size, and the caller forgets it. An
  // error is final: the peer died, does not answer or has made no progress for the timeout.
  Result<bool> test(Request& request);

 protected:
  struct Connection {
    link::Descriptor socket;
    std::array<std::byte, ChunkHeader::kBytes> header = {};
    std::size_t header_moved = 0;
    ChunkHeader chunk = {};
    std::size_t chunk_moved = 0;
    link::Tag tag = {};
    std::size_t tag_moved = 0;
    std::uint64_t chunks = 0;  // that have begun here
    bool has_chunk = false, is_open = true;
  };

  Request& of(std::uint64_t message) { return requests_[message % kRequestsMax]; }
  std::uint64_t posted() const { return posted_; }
  std::vector<Connection>& connections() { return connections_; }
  tl::unexpected<Error> lost(const std::string& why) const;
  void begin(Connection& connection, const ChunkHeader& chunk);
  void end_chunk(Connection& connection);
  // The rest of the current chunk, and of its tag.
  std::array<iovec, 2> rest_of_chunk(Connection& connection);
  std::span<std::byte> bytes_of(const ChunkHeader& chunk) {
    return {of(chunk.message).data + chunk.offset, chunk.bytes};
  }
  const link::Tags* tags() const { return tags_.get(); }
  // A tag covers this and the bytes. The number of the chunk is not sent: a chunk that others send again, or over
  // another connection, has a wrong tag there.
  using TaggedHeader = std::array<std::byte, ChunkHeader::kBytes + 2 * sizeof(std::uint64_t)>;
  TaggedHeader tagged_header(const Connection& connection) const;

 private:
  virtual Result<bool> move() = 0;  // true if any byte moved
  Result<void> check_silence(Nanoseconds now);

  const std::string peer_;
  const Nanoseconds timeout_;
  std::unique_ptr<link::Tags> tags_;
  std::vector<Connection> connections_;
  std::array<Request, kRequestsMax> requests_ = {};
  std::uint64_t posted_ = 0;
  Nanoseconds last_move_ = 0, next_look_ = 0;
  std::optional<Error> failure_;
};

class Sender final : public Stripes {
 public:
  Sender(std::vector<link::Descriptor> sockets, std::unique_ptr<link::Tags> tags, std::string peer,
         Nanoseconds timeout);

 private:
  Result<bool> move() override;
  bool deal(Connection& connection);
  Result<bool> send_to(Connection& connection);

  std::uint64_t dealing_ = 0;  // the message whose chunks are dealt next
  std::size_t next_ = 0;       // the connection that is asked next
};

class Receiver final : public Stripes {
 public:
  using Stripes::Stripes;

 private:
  Result<bool> move() override;
  Result<bool> receive_from(Connection& connection);
  Result<bool> accept_chunk(Connection& connection);
};

}  // namespace netfold::nccl
