#include "group/via_peers/messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "group/via_peers/message.h"

namespace netfold::group {
namespace {

constexpr std::size_t kFrameBytes = kMessageUnit;

std::size_t padding_of(std::size_t size_bytes) {
  return (kMessageUnit - size_bytes % kMessageUnit) % kMessageUnit;
}

std::size_t cost_of(std::size_t size_bytes) {
  return kFrameBytes + size_bytes + padding_of(size_bytes);
}

}  // namespace

Messages::Messages(int rank, std::vector<link::StreamLink*> links) : rank_(rank), peers_(links.size()) {
  static_assert(sizeof(Frame) <= kFrameBytes && kCreditBytes >= 2 * (kFrameBytes + kSmallBytesMax));
  for (std::size_t peer = 0; peer < links.size(); ++peer) peers_[peer].link = links[peer];
}

// --- What is asked for ---

void Messages::submit(Ticket ticket, const CollectiveRequest& request, std::size_t size_bytes) {
  pending_[ticket] = request.peer;
  if (request.collective == schedule::Collective::kSend) return send(ticket, request, size_bytes);
  receive({ticket, request.peer, request.tag, static_cast<std::byte*>(request.out), size_bytes, request.sender});
}

void Messages::send(Ticket ticket, const CollectiveRequest& request, std::size_t size_bytes) {
  Peer& peer = peers_[static_cast<std::size_t>(request.peer)];
  Outgoing message{{.tag = request.tag, .size = size_bytes}, static_cast<const std::byte*>(request.in), ticket};
  const std::size_t cost = cost_of(size_bytes);
  if (size_bytes <= kSmallBytesMax && cost <= peer.credit) {
    peer.credit -= cost;
    return queue(peer, message);
  }
  message.frame.id = peer.next_id++;
  Frame announcement = message.frame;
  announcement.kind = Frame::Kind::kAnnounce;
  message.frame.kind = Frame::Kind::kLarge;
  peer.announced[message.frame.id] = message;
  queue(peer, {announcement});
}

void Messages::receive(Receive receive) {
  const auto kept = std::ranges::find_if(kept_, [&](const Kept& each) {
    return !each.receive && each.frame.tag == receive.tag && (receive.from == kNoRank || receive.from == each.from);
  });
  if (kept == kept_.end()) return receives_.push_back(receive);
  if (const auto fits = check_size(kept->from, kept->frame, receive); !fits) {
    error_ = fits.error();
    return receives_.push_back(receive);
  }
  pending_[receive.ticket] = kept->from;
  if (kept->frame.kind == Frame::Kind::kAnnounce) {
    ask_for(peers_[static_cast<std::size_t>(kept->from)], kept->frame.id, receive);
    kept_.erase(kept);
    return;
  }
  kept->receive = receive;
  if (kept->is_whole) take_kept(kept);
}

void Messages::queue(Peer& peer, Outgoing outgoing) {
  peer.outgoing.push_back(outgoing);
  ++frames_;
}

// --- Moving ---

Result<bool> Messages::pump() {
  if (error_) return tl::unexpected(*error_);
  if (is_idle() && !has_unflushed_) return false;
  bool has_moved = false;
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (peer.link == nullptr) continue;
      const auto read = this->read(static_cast<int>(rank), peer);
      if (!read) return read;
      const bool written = write(peer);
      moves = *read || written || moves;
    }
    has_moved = has_moved || moves;
  }
  has_unflushed_ = false;
  for (Peer& peer : peers_) {
    if (peer.link == nullptr) continue;
    peer.link->flush();
    has_unflushed_ = has_unflushed_ || peer.link->has_unsent();
  }
  return has_moved;
}

bool Messages::write(Peer& peer) {
  peer.wants_room = false;
  bool has_moved = false;
  while (!peer.outgoing.empty()) {
    const Outgoing& front = peer.outgoing.front();
    const std::size_t size = front.bytes == nullptr ? 0 : front.frame.size;
    const std::size_t whole = kFrameBytes + size + padding_of(size);
    const auto room = peer.link->writable();
    std::size_t bytes = 0;
    if (peer.begun_bytes == 0) {
      if (room.size() < kFrameBytes) return peer.wants_room = true, has_moved;
      bytes = kFrameBytes;
      std::memset(room.data(), 0, bytes);
      std::memcpy(room.data(), &front.frame, sizeof front.frame);
    } else if (const std::size_t done = peer.begun_bytes - kFrameBytes; done < size) {
      if (room.empty()) return peer.wants_room = true, has_moved;
      bytes = std::min(room.size(), size - done);
      std::memcpy(room.data(), front.bytes + done, bytes);
    } else if (peer.begun_bytes < whole) {
      if (room.empty()) return peer.wants_room = true, has_moved;
      bytes = std::min(room.size(), whole - peer.begun_bytes);
      std::memset(room.data(), 0, bytes);
    }
    if (bytes > 0) peer.link->commit(bytes);
    peer.begun_bytes += bytes;
    has_moved = true;
    if (peer.begun_bytes < whole) continue;
    if (front.ticket != kNoTicket) {
      pending_.erase(front.ticket);
      finished_.push_back(front.ticket);
    }
    peer.outgoing.pop_front();
    peer.begun_bytes = 0;
    --frames_;
  }
  return has_moved;
}

Result<bool> Messages::read(int rank, Peer& peer) {
  bool has_moved = false;
  for (;;) {
    const auto data = peer.link->readable();
    Incoming& incoming = peer.incoming;
    if (incoming.bytes + incoming.padding == 0) {
      if (data.size() < kFrameBytes) return has_moved;
      Frame frame;
      std::memcpy(&frame, data.data(), sizeof frame);
      peer.link->consume(kFrameBytes);
      if (const auto heard = hear(rank, peer, frame); !heard) return tl::unexpected(heard.error());
    } else {
      if (data.empty()) return has_moved;
      const std::size_t bytes = std::min(data.size(), incoming.bytes);
      const std::size_t padding = std::min(data.size() - bytes, incoming.bytes == bytes ? incoming.padding : 0);
      if (bytes > 0) std::memcpy(incoming.to, data.data(), bytes);
      incoming.to += bytes;
      incoming.bytes -= bytes;
      incoming.padding -= padding;
      peer.link->consume(bytes + padding);
      if (incoming.bytes + incoming.padding == 0) end_incoming(rank, peer);
    }
    has_moved = true;
  }
}

// --- What comes ---

tl::unexpected<Error> Messages::nonsense(int rank) const {
  return fail(ErrorCode::kPeerFailed, fmt::format("rank {} sent rank {} something that is not a message", rank, rank_),
              rank);
}

Result<void> Messages::check_size(int rank, const Frame& frame, const Receive& receive) const {
  if (frame.size == receive.size) return {};
  return fail(
      ErrorCode::kMismatch,
      fmt::format("rank {} sends rank {} a message of {} bytes with tag {}, and rank {} receives {} bytes: give "
                  "both ranks tensors of the same size and type",
                  rank, rank_, frame.size, frame.tag, rank_, receive.size),
      rank);
}

Result<void> Messages::hear(int rank, Peer& peer, const Frame& frame) {
  if (frame.magic != Frame::kMagic) return nonsense(rank);
  switch (frame.kind) {
    case Frame::Kind::kSmall: return hear_small(rank, peer, frame);
    case Frame::Kind::kAnnounce: return hear_announced(rank, peer, frame);
    case Frame::Kind::kClear: {
      const auto found = peer.announced.find(frame.id);
      if (found == peer.announced.end()) return nonsense(rank);
      queue(peer, found->second);
      peer.announced.erase(found);
      return {};
    }
    case Frame::Kind::kLarge: {
      const auto found = peer.cleared.find(frame.id);
      if (found == peer.cleared.end() || found->second.size != frame.size) return nonsense(rank);
      const Receive receive = found->second;
      peer.cleared.erase(found);
      await(peer, {.to = receive.to, .receive = receive}, frame.size);
      if (frame.size == 0) end_incoming(rank, peer);
      return {};
    }
    case Frame::Kind::kCredit:
      if (frame.size > kCreditBytes - peer.credit) return nonsense(rank);
      peer.credit += frame.size;
      return {};
  }
  return nonsense(rank);
}

// The first receive that asks for such a message.
Result<std::optional<Messages::Receive>> Messages::take_receive_for(int rank, const Frame& frame) {
  const auto found = std::ranges::find_if(receives_, [&](const Receive& each) {
    return each.tag == frame.tag && (each.from == kNoRank || each.from == rank);
  });
  if (found == receives_.end()) return std::nullopt;
  if (const auto fits = check_size(rank, frame, *found); !fits) return tl::unexpected(fits.error());
  const Receive receive = *found;
  receives_.erase(found);
  pending_[receive.ticket] = rank;
  return receive;
}

Result<void> Messages::hear_small(int rank, Peer& peer, const Frame& frame) {
  if (frame.size > kSmallBytesMax) return nonsense(rank);
  auto receive = take_receive_for(rank, frame);
  if (!receive) return tl::unexpected(receive.error());
  if (*receive) {
    await(peer, {.to = (*receive)->to, .receive = *receive, .cost = cost_of(frame.size)}, frame.size);
  } else {
    Kept& kept = kept_.emplace_back(rank, frame);
    kept.bytes.resize(frame.size);
    await(peer, {.to = kept.bytes.data(), .kept = &kept}, frame.size);
  }
  if (frame.size == 0) end_incoming(rank, peer);
  return {};
}

Result<void> Messages::hear_announced(int rank, Peer& peer, const Frame& frame) {
  auto receive = take_receive_for(rank, frame);
  if (!receive) return tl::unexpected(receive.error());
  if (*receive) {
    ask_for(peer, frame.id, **receive);
  } else {
    kept_.emplace_back(rank, frame);
  }
  return {};
}

void Messages::ask_for(Peer& peer, std::uint64_t id, const Receive& receive) {
  peer.cleared[id] = receive;
  queue(peer, {{.kind = Frame::Kind::kClear, .id = id}});
}

void Messages::await(Peer& peer, Incoming incoming, std::size_t size) {
  incoming.bytes = size;
  incoming.padding = padding_of(size);
  peer.incoming = incoming;
}

void Messages::end_incoming(int rank, Peer& peer) {
  const Incoming ended = std::exchange(peer.incoming, {});
  if (ended.receive) {
    finish(*ended.receive, rank);
    return give_credit(peer, ended.cost);
  }
  ended.kept->is_whole = true;
  if (!ended.kept->receive) return;
  take_kept(std::ranges::find_if(kept_, [&](const Kept& each) { return &each == ended.kept; }));
}

void Messages::take_kept(std::list<Kept>::iterator kept) {
  const Receive& receive = *kept->receive;
  if (receive.size > 0) std::memcpy(receive.to, kept->bytes.data(), receive.size);
  finish(receive, kept->from);
  give_credit(peers_[static_cast<std::size_t>(kept->from)], cost_of(receive.size));
  kept_.erase(kept);
}

void Messages::finish(const Receive& receive, int from) {
  if (receive.sender != nullptr) *receive.sender = from;
  pending_.erase(receive.ticket);
  finished_.push_back(receive.ticket);
}

// A quarter at a time: meanwhile a sender without credit announces its messages.
void Messages::give_credit(Peer& peer, std::size_t bytes) {
  peer.owed += bytes;
  if (peer.owed < kCreditBytes / 4) return;
  queue(peer, {{.kind = Frame::Kind::kCredit, .size = std::exchange(peer.owed, 0)}});
}

// --- Waiting, and the end ---

bool Messages::arm() {
  bool has_news = false;
  for (Peer& peer : peers_) {
    if (peer.link != nullptr) has_news = peer.link->arm(!pending_.empty(), peer.wants_room) || has_news;
  }
  return !has_news;
}

std::vector<Messages::Ticket> Messages::take_finished() {
  return std::exchange(finished_, {});
}

std::vector<Messages::Ticket> Messages::abandon() {
  std::vector<Ticket> tickets;
  for (const auto& [ticket, peer] : pending_) tickets.push_back(ticket);
  pending_.clear();
  receives_.clear();
  kept_.clear();
  frames_ = 0;
  has_unflushed_ = false;
  for (Peer& peer : peers_) {
    link::StreamLink* const link = peer.link;
    peer = Peer();
    peer.link = link;
  }
  return tickets;
}

std::vector<int> Messages::blocking_ranks() const {
  if (pending_.empty()) return {};
  const int of_oldest = pending_.begin()->second;
  if (of_oldest != kNoRank) return {of_oldest};
  std::vector<int> others;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_) others.push_back(rank);
  }
  return others;
}

bool Messages::waits_for(int rank) const {
  return std::ranges::any_of(pending_, [&](const auto& each) { return each.second == rank; });
}

}  // namespace netfold::group
