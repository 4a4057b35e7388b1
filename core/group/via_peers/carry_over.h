// Ranks that lose some of their number go on, as another group, over the connections that they have. Streams hold what
// the old group left unread. So each rank says over the life line from which position in its streams on the bytes are
// the new group's, and the others discard what comes before: nothing of the old group reaches a sum of the new one. The
// position is a whole number of message units; the sender fills the last unit with zeros. Pure: it is given links.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "group/via_peers/life_lines.h"
#include "link/shm/doorbell.h"
#include "link/stream_link.h"
#include "wire/control/proofs.h"

namespace netfold::group {

// How a rank reaches another, between two groups.
struct KeptPeer {
  std::unique_ptr<link::StreamLink> data, messages;
  LifeLines::Line line;
  std::shared_ptr<link::Doorbell> bell;  // the other's; null where it is not reached over shared memory
};

// By rank of the old group; null: that connection has ended, or was not kept.
struct KeptPeers {
  std::vector<std::unique_ptr<KeptPeer>> peers;
  std::shared_ptr<link::Doorbell> bell;  // this rank's own; null without shared memory
};

class CarryOver {
 public:
  // `lines` of the new group, which must outlive it, as must all streams. `group` names it, alike on all its ranks;
  // no connection ever moves to groups of the same name twice. With a secret each rank proves to know it.
  CarryOver(int rank, int world, std::string group, std::optional<control::Secret> secret, LifeLines& lines)
      : rank_(rank), world_(world), group_(std::move(group)), secret_(std::move(secret)), lines_(lines) {}

  // Says to this rank where the new group's bytes begin. Its line is in `lines` already.
  void add(int rank, link::StreamLink& data, link::StreamLink& messages);
  // Discards and fills as far as can be now. True once nothing of the old group is left, in either direction.
  // An error names a rank that has ended, or does not know the secret (kAuth).
  Result<bool> pump(Nanoseconds now);
  // Of the ranks that this one waits for, the first; kNoRank: none.
  int missing_rank() const;

  // Before its user sleeps: false if there is news. Then what becomes ready with news; doorbells are the user's.
  bool arm();
  void add_polls(std::vector<pollfd>& polls) const;

 private:
  struct Stream {
    link::StreamLink* link;
    std::uint64_t begins_at = 0;  // ours, in the new group
    bool has_arrived = false;     // the new group's bytes are next
    bool is_done() const { return has_arrived && link->committed() == begins_at && !link->has_unsent(); }
  };
  struct Peer {
    int rank;
    Stream data, messages;
    bool is_proven = false;
    bool is_done() const { return data.is_done() && messages.is_done(); }
  };
  static Stream begin(link::StreamLink& link);
  Result<void> move(int rank, Stream& stream, const std::uint64_t* arrives_at) const;

  std::string proof_of(int from, int to, const LifeLines::Move& move) const;

  int rank_, world_;
  std::string group_;
  std::optional<control::Secret> secret_;
  LifeLines& lines_;
  std::vector<Peer> peers_;
};

}  // namespace netfold::group
