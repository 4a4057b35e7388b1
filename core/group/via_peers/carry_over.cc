#include "group/via_peers/carry_over.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/hex.h"
#include "group/via_peers/message.h"

namespace netfold::group {

CarryOver::Stream CarryOver::begin(link::StreamLink& link) {
  return {&link, (link.committed() + kMessageUnit - 1) / kMessageUnit * kMessageUnit};
}

void CarryOver::add(int rank, link::StreamLink& data, link::StreamLink& messages) {
  const Peer& peer = peers_.emplace_back(rank, begin(data), begin(messages));
  LifeLines::Move move{group_, peer.data.begins_at, peer.messages.begins_at};
  move.proof = proof_of(rank_, rank, move);
  lines_.say_move(rank, move);
}

// Over all that the word says, for this connection and this direction.
std::string CarryOver::proof_of(int from, int to, const LifeLines::Move& move) const {
  if (!secret_) return {};
  control::RankPair pair{from, to, world_, {}, {}};
  static_assert(sizeof pair.answered == sizeof move.data + sizeof move.messages);
  std::memcpy(pair.asked.data(), move.group.data(), std::min(pair.asked.size(), move.group.size()));
  std::memcpy(pair.answered.data(), &move.data, sizeof move.data);
  std::memcpy(pair.answered.data() + sizeof move.data, &move.messages, sizeof move.messages);
  return to_hex(secret_->rank_proof("move", pair));
}

Result<bool> CarryOver::pump(Nanoseconds now) {
  if (const auto heard = lines_.listen(now); !heard) return tl::unexpected(heard.error());
  bool is_done = true;
  for (Peer& peer : peers_) {
    if (lines_.has_left(peer.rank)) {
      return fail(ErrorCode::kPeerFailed, fmt::format("rank {} left while rank {} joined", peer.rank, rank_),
                  peer.rank);
    }
    if (peer.is_done()) continue;
    const auto& arrival = lines_.arrival_of(peer.rank);
    if (arrival && !std::exchange(peer.is_proven, true)) {
      if (!control::equal_in_constant_time(arrival->proof, proof_of(peer.rank, rank_, *arrival))) {
        return fail(ErrorCode::kAuth,
                    fmt::format("rank {} and rank {} do not know the same secret: give all ranks the same, or none",
                                peer.rank, rank_),
                    peer.rank);
      }
    }
    const auto data = move(peer.rank, peer.data, arrival ? &arrival->data : nullptr);
    if (!data) return tl::unexpected(data.error());
    const auto messages = move(peer.rank, peer.messages, arrival ? &arrival->messages : nullptr);
    if (!messages) return tl::unexpected(messages.error());
    is_done = is_done && peer.is_done();
  }
  return is_done;
}

// Until it is known where the new group's bytes begin, every byte may be one of them.
Result<void> CarryOver::move(int rank, Stream& stream, const std::uint64_t* arrives_at) const {
  link::StreamLink& link = *stream.link;
  while (link.committed() < stream.begins_at) {
    const auto room = link.writable();
    const std::size_t count = std::min<std::size_t>(room.size(), stream.begins_at - link.committed());
    if (count == 0) break;
    std::memset(room.data(), 0, count);
    link.commit(count);
  }
  while (arrives_at != nullptr && link.consumed() < *arrives_at) {
    const std::size_t count = std::min<std::size_t>(link.readable().size(), *arrives_at - link.consumed());
    if (count == 0) break;
    link.consume(count);
  }
  link.flush();
  if (arrives_at != nullptr && link.consumed() > *arrives_at) {
    return fail(ErrorCode::kPeerFailed,
                fmt::format("rank {} says that its bytes for this group begin where rank {} has read", rank, rank_),
                rank);
  }
  stream.has_arrived = arrives_at != nullptr && link.consumed() == *arrives_at;
  if (stream.is_done() || !link.ended()) return {};
  return fail(ErrorCode::kPeerFailed,
              fmt::format("rank {} {} while rank {} took its connection over", rank, *link.ended(), rank_), rank);
}

int CarryOver::missing_rank() const {
  const auto found = std::ranges::find_if(peers_, [](const Peer& each) { return !each.is_done(); });
  return found == peers_.end() ? kNoRank : found->rank;
}

bool CarryOver::arm() {
  bool has_news = false;
  for (const Peer& peer : peers_) {
    const bool is_known = lines_.arrival_of(peer.rank).has_value();
    for (const Stream& each : {peer.data, peer.messages}) {
      const bool wants_data = is_known && !each.has_arrived, wants_room = each.link->committed() < each.begins_at;
      has_news = each.link->arm(wants_data, wants_room) || has_news;
    }
  }
  return !has_news;
}

void CarryOver::add_polls(std::vector<pollfd>& polls) const {
  for (const Peer& peer : peers_) {
    peer.data.link->add_polls(polls);
    peer.messages.link->add_polls(polls);
  }
}

}  // namespace netfold::group
