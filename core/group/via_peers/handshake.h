// How two ranks find out how to reach each other. The higher rank connects; both say who they are. If the lower one
// finds the other's socket (link/shm/handover.h) they are on one machine, and it sends the descriptor of shared memory;
// otherwise further connections carry the data. Messages between the two have a link of their own, of the same kind.
// The first connection stays as the life line: its end is the end of the peer.
//
// With a secret each proves to the other that it knows it, on both connections, by hashes over what both drew for this
// meeting (wire/control/proofs.h). A process that cannot is not a rank: a rank that answers ignores it, a rank that
// asked reports an error. Ranks that want tags say so, and must agree: then every byte between machines, after these
// lines, is under one (rank_tags.h).
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "link/control_link.h"
#include "link/descriptor.h"
#include "link/link.h"
#include "link/road.h"
#include "link/shm/shm_stream.h"
#include "link/stream_link.h"
#include "wire/control/proofs.h"

namespace netfold::group {

// Of what ranks say to each other; all must have the same.
constexpr int kRanksVersion = 9;
// Of the ring for messages.
constexpr std::size_t kMessageRingBytes = std::size_t{256} << 10;
// How long to sleep where part of a line has come: its descriptor would be ready again at once.
constexpr auto kPartialLine = std::chrono::milliseconds(1);

// What a rank goes on with while it waits for one of the others: a third one may wait for it.
class Meanwhile {
 public:
  virtual ~Meanwhile() = default;
  // Adds what becomes ready when there is something to do; there is also at the time that it returns.
  virtual Nanoseconds add_polls(std::vector<pollfd>& polls) = 0;
  // Does it. An error ends the waiting.
  virtual Result<void> go_on() = 0;
};

struct HandshakeOptions {
  int rank = 0, world = 1;
  std::shared_ptr<link::Doorbell> bell;  // ours; null: no shared memory
  std::optional<control::Secret> secret;
  bool tagged = false;  // what leaves the machine; needs a secret
  std::size_t ring_bytes = std::size_t{1} << 20;
  int tcp_streams = 1;  // connections by each road that carry data to a lower rank; to a higher one that one decides
  std::vector<link::Road> roads = {{}};  // of this rank's packets; everything but data takes the first
  Nanoseconds deadline = kNever;
  std::function<bool()> keep_going;  // asked at least every 100 ms; false gives up
  Meanwhile* meanwhile = nullptr;
};

// One of those that carry data.
struct DataConnection {
  link::Descriptor socket;
  int index = 0, of = 1;
  bool is_for_messages = false;  // then there is one
};

struct PeerLinks {
  int rank = kNoRank;
  link::Descriptor control = {};                    // the first connection
  std::unique_ptr<link::StreamLink> data = {};      // null as long as its connections have not come
  std::unique_ptr<link::StreamLink> messages = {};  // the same
  DataConnection connection = {};                   // one that has
  std::shared_ptr<link::Doorbell> bell = {};        // the peer's, if it is reached over shared memory
  std::string proof = {};  // that a data connection is to bring, or has brought; "" without a secret
  control::RankPair pair = {};
};

// Of the first connection, with tags where ranks want them.
std::unique_ptr<link::ControlLink> open_life_line(link::Descriptor socket, const control::RankPair& pair,
                                                  const HandshakeOptions& options);

// Of connections that carry data, or messages.
Result<std::unique_ptr<link::StreamLink>> open_stream(std::vector<link::Descriptor> sockets, bool is_for_messages,
                                                      const control::RankPair& pair, const HandshakeOptions& options);

// With a lower rank, that listens at these addresses. There are as many as roads, and each road leads to one of them.
Result<PeerLinks> connect_to(int rank, std::span<const link::Address> addresses, const HandshakeOptions& options);

// A connection that somebody has made to this rank, until it is known what it is. Many may come at once, and strangers
// among them that say nothing: none of them is waited for.
class Visitor {
 public:
  enum class State {
    kWaits,     // for its next line
    kStranger,  // to be dropped
    kRank,      // a higher rank
    kData,      // a connection that carries a rank's data
  };

  Visitor(link::Descriptor socket, Nanoseconds now) : socket_(std::move(socket)), known_by_(now + kHelloMax) {}

  // Takes what has come. With a secret, it fails only for a rank that has proven to know it.
  Result<State> advance(const HandshakeOptions& options);

  int descriptor() const { return state_ == State::kWaits ? socket_.get() : -1; }  // to be polled
  Nanoseconds known_by() const { return state_ == State::kWaits ? known_by_ : kNever; }
  bool has_said_hello() const { return has_said_hello_; }
  int rank() const { return links_.rank; }  // that it says it is
  PeerLinks take_links() { return std::move(links_); }

 private:
  static constexpr Nanoseconds kHelloMax = 30 * kSecond;  // a rank may come late on a busy machine

  Result<State> hear_hello(const nlohmann::json& message, const HandshakeOptions& options);
  Result<State> hear_verdict(const nlohmann::json& message);

  link::Descriptor socket_;
  Nanoseconds known_by_;
  State state_ = State::kWaits;
  bool has_said_hello_ = false;
  PeerLinks links_;
  std::string awaited_proof_;
  std::optional<Error> objection_;  // that this is not the rank that it means; told once it has proven the secret
};

// Sleeps until a descriptor is ready or it is `until`. An error when the deadline has passed or the caller gives up.
Result<void> wait_until_ready(std::span<pollfd> polls, Nanoseconds until, const HandshakeOptions& options);

}  // namespace netfold::group
