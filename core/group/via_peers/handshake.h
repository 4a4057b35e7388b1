// How two ranks find out how to reach each other. The higher rank connects; both say who they are. If the lower one
// finds the other's socket (link/shm/handover.h) they are on one machine, and it sends the descriptor of shared memory;
// otherwise further connections carry the data. The first stays as the life line: its end is the end of the peer.
//
// With a secret each proves to the other that it knows it, on both connections, by hashes over what both drew for this
// meeting (wire/control/proofs.h). A process that cannot is not a rank: a rank that answers ignores it, a rank that
// asked reports an error.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "link/descriptor.h"
#include "link/link.h"
#include "link/shm/shm_stream.h"
#include "link/stream_link.h"
#include "wire/control/proofs.h"

namespace netfold::group {

struct HandshakeOptions {
  int rank = 0, world = 1;
  std::shared_ptr<link::Doorbell> bell;  // ours; null: no shared memory
  std::optional<control::Secret> secret;
  std::size_t ring_bytes = std::size_t{1} << 20;
  int tcp_streams = 1;  // connections that carry data to a lower rank; to a higher one it is that one's affair
  Nanoseconds deadline = kNever;
  std::function<bool()> keep_going;  // asked at least every 100 ms; false gives up
};

// One of those that carry data.
struct DataConnection {
  link::Descriptor socket;
  int index = 0, of = 1;
};

struct PeerLinks {
  int rank = kNoRank;
  int control = -1;                             // a descriptor, the caller's to close
  std::unique_ptr<link::StreamLink> data = {};  // null as long as its connections have not come
  DataConnection connection = {};               // one that has
  std::shared_ptr<link::Doorbell> bell = {};    // the peer's, if it is reached over shared memory
  std::string proof = {};  // that a data connection is to bring, or has brought; "" without a secret
};

// With a lower rank, that listens at `address`.
Result<PeerLinks> connect_to(int rank, link::Address address, const HandshakeOptions& options);

// With whoever has connected. A rank of kNoRank: a stranger, which is ignored; a control of -1: a data connection of a
// rank that came before. Takes `descriptor` over.
Result<PeerLinks> answer(int descriptor, const HandshakeOptions& options);

// Sleeps until the descriptor is ready, the deadline has passed, or the caller gives up; an error for the last two.
Result<void> wait_until_ready(int descriptor, short events, const HandshakeOptions& options);

}  // namespace netfold::group
