// Messages between two ranks, over links of their own: a receive that waits never holds a collective up. A state
// machine: it is given links, and neither waits nor reads a clock.
//
// A message is received by a receive with its tag, from its sender or from any rank. Messages with one tag from one
// sender are received in the order in which they were sent. A small message leaves at once, and the receiver keeps it
// if no receive asks for it yet: at most kCreditBytes of each sender. A large one, or one without credit, is announced,
// and leaves when a receive asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "group/collective_request.h"
#include "group/via_peers/runner.h"
#include "link/stream_link.h"

namespace netfold::group {

class Messages final : public Runner {
 public:
  static constexpr std::size_t kSmallBytesMax = std::size_t{16} << 10;
  static constexpr std::size_t kCreditBytes = std::size_t{64} << 10;
  // Tags from here on are for messages of the group's own, beside those of callers.
  static constexpr std::uint64_t kOwnTags = std::uint64_t{1} << 63;

  // links[peer], null for this rank. They must outlive this.
  Messages(int rank, std::vector<link::StreamLink*> links);

  // A kSend or kReceive of another rank that exists; `size_bytes` of its memory.
  void submit(Ticket ticket, const CollectiveRequest& request, std::size_t size_bytes);

  Result<bool> pump() override;
  bool is_idle() const override { return pending_.empty() && frames_ == 0; }
  bool arm() override;
  std::vector<Ticket> take_finished() override;
  std::vector<Ticket> abandon() override;
  std::vector<int> blocking_ranks() const override;
  bool waits_for(int rank) const override;
  std::uint64_t reduced_elements() const override { return 0; }

  // Only receives are left for which nothing has come: nobody misses anything if this rank leaves.
  bool may_leave() const { return frames_ == 0 && pending_.size() == receives_.size(); }

 private:
  // What begins a message, or is all of it; the message's bytes follow, padded.
  struct Frame {
    std::uint32_t magic = kMagic;
    enum class Kind : std::uint32_t {
      kSmall,     // a message of `size` bytes, which follow
      kAnnounce,  // a message of `size` bytes, called `id` from here on
      kClear,     // a receive asks for message `id`
      kLarge,     // message `id`: its bytes follow
      kCredit,    // small messages of so many bytes, frames and padding included, are no longer kept
    } kind = Kind::kSmall;
    std::uint64_t tag = 0, size = 0, id = 0;

    static constexpr std::uint32_t kMagic = 0x6d657367;
  };
  struct Outgoing {
    Frame frame;
    const std::byte* bytes = nullptr;  // `frame.size` of them follow, unless null
    Ticket ticket = kNoTicket;         // that is finished with it
  };
  struct Receive {
    Ticket ticket;
    int from;
    std::uint64_t tag;
    std::byte* to;
    std::size_t size;
    std::int32_t* sender;
  };
  // A message, or word of one, that no receive has asked for.
  struct Kept {
    int from;
    Frame frame;
    std::vector<std::byte> bytes = {};
    bool is_whole = false;
    std::optional<Receive> receive = {};  // that has asked for it while its bytes still come
  };
  struct Incoming {
    std::size_t bytes = 0, padding = 0;  // still to come
    std::byte* to = nullptr;
    std::optional<Receive> receive = {};  // that is finished with it; else it is kept
    Kept* kept = nullptr;
    std::size_t cost = 0;  // of a small message
  };
  struct Peer {
    link::StreamLink* link = nullptr;
    std::deque<Outgoing> outgoing;
    std::size_t begun_bytes = 0;  // of the first of them that have left
    std::map<std::uint64_t, Outgoing> announced;
    std::map<std::uint64_t, Receive> cleared;
    Incoming incoming;
    std::size_t credit = kCreditBytes, owed = 0;
    std::uint64_t next_id = 1;
    bool wants_room = false;
  };

  static constexpr Ticket kNoTicket = 0;

  void send(Ticket ticket, const CollectiveRequest& request, std::size_t size_bytes);
  void receive(Receive receive);
  void queue(Peer& peer, Outgoing outgoing);
  Result<bool> read(int rank, Peer& peer);
  bool write(Peer& peer);
  Result<void> hear(int rank, Peer& peer, const Frame& frame);
  Result<void> hear_small(int rank, Peer& peer, const Frame& frame);
  Result<void> hear_announced(int rank, Peer& peer, const Frame& frame);
  Result<std::optional<Receive>> take_receive_for(int rank, const Frame& frame);
  Result<void> check_size(int rank, const Frame& frame, const Receive& receive) const;
  tl::unexpected<Error> nonsense(int rank) const;
  void ask_for(Peer& peer, std::uint64_t id, const Receive& receive);
  void await(Peer& peer, Incoming incoming, std::size_t size);
  void end_incoming(int rank, Peer& peer);
  void take_kept(std::list<Kept>::iterator kept);
  void finish(const Receive& receive, int from);
  void give_credit(Peer& peer, std::size_t bytes);

  int rank_;
  std::vector<Peer> peers_;
  std::deque<Receive> receives_;   // for which nothing has come, in their order
  std::list<Kept> kept_;           // in the order in which they came
  std::map<Ticket, int> pending_;  // the other rank of each, kNoRank where it is not known
  std::size_t frames_ = 0;         // in all queues
  bool has_unflushed_ = false;
  std::optional<Error> error_;  // found while something was submitted
  std::vector<Ticket> finished_;
};

}  // namespace netfold::group
