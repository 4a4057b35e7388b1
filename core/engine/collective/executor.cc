#include "engine/collective/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace netfold::engine {
namespace {

using schedule::Action;

constexpr std::size_t kChunk = 16384;  // elements: large against what a turn costs, small against the second cache
constexpr std::size_t kUnit = 128;  // elements: where a link is short of room or data, whole blocks of every bfp shape

std::size_t padded(std::size_t size_bytes) {
  return (size_bytes + kMessageUnit - 1) / kMessageUnit * kMessageUnit;
}

}  // namespace

Executor::Executor(int rank, std::vector<link::StreamLink*> links) : rank_(rank), peers_(links.size()) {
  for (std::size_t peer = 0; peer < links.size(); ++peer) peers_[peer].link = links[peer];
}

void Executor::submit(std::shared_ptr<Reduction> reduction, const std::vector<Slice>& slices) {
  reduction->start(rooms_, slices.size());
  for (const Slice& slice : slices) enqueue(reduction, slice);
  reap();
}

void Executor::enqueue(std::shared_ptr<Reduction> reduction, const Slice& slice) {
  const auto& transfers = slice.plan->transfers;
  auto running = std::make_unique<Running>();
  running->reduction = std::move(reduction);
  running->slice = slice;
  running->unfinished = transfers.size();
  running->positions.reserve(transfers.size());
  running->headers.resize(transfers.size());
  for (std::uint32_t i = 0; i < transfers.size(); ++i) {
    running->positions.push_back(transfers[i].offset);
    Peer& peer = peers_[static_cast<std::size_t>(transfers[i].peer)];
    (transfers[i].action == Action::kSend ? peer.sends : peer.receives).push_back({running.get(), i});
  }
  running_.push_back(std::move(running));
}

// Receiving first: what was folded is sent on while it is in the cache.
Result<bool> Executor::pump() {
  bool has_moved = false;
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      peer.wants_data = peer.wants_room = false;
      if (!peer.receives.empty()) {
        const auto received = receive(static_cast<int>(rank), peer);
        if (!received) return received;
        moves = *received || moves;
      }
      if (!peer.sends.empty()) moves = send(peer) || moves;
    }
    has_moved = has_moved || moves;
  }
  for (Peer& peer : peers_) {
    if (peer.link != nullptr) peer.link->flush();
  }
  if (has_moved) reap();
  return has_moved;
}

bool Executor::arm() {
  bool has_news = false;
  for (Peer& peer : peers_) {
    if (peer.link != nullptr) has_news = peer.link->arm(peer.wants_data, peer.wants_room) || has_news;
  }
  return !has_news;
}

// Whether those it follows have ended.
bool Executor::may_begin(const Queued& queued) {
  const auto& transfers = queued.of->slice.plan->transfers;
  const auto& follows = transfers[queued.transfer].follows;
  return std::all_of(follows.begin(), follows.end(),
                     [&](std::uint32_t other) { return queued.of->positions[other] == transfers[other].end(); });
}

// How far a transfer may go: up to where the first of those it waits for is; nowhere before its turn has come, here and
// at the peer.
std::size_t Executor::limit(const Queued& queued) {
  const auto& transfers = queued.of->slice.plan->transfers;
  const PlannedTransfer& transfer = transfers[queued.transfer];
  if (!may_begin(queued) || (transfer.answer && !queued.of->headers[*transfer.answer])) return transfer.offset;
  std::size_t limit = transfer.end();
  for (const std::uint32_t other : transfer.waits_for) {
    const std::size_t position = queued.of->positions[other];
    if (position < transfers[other].end()) limit = std::min(limit, position);
  }
  return limit;
}

const Piece& Executor::piece_at(const PlannedTransfer& transfer, std::size_t position) {
  return *std::find_if(transfer.pieces.begin(), transfer.pieces.end(),
                       [&](const Piece& piece) { return position < piece.end; });
}

bool Executor::send(Peer& peer) {
  Queued& queued = peer.sends.front();
  Reduction& reduction = *queued.of->reduction;
  const PlannedTransfer& transfer = queued.planned();
  auto room = peer.link->writable();
  bool has_moved = false;
  if (!queued.has_header()) {
    if (!may_begin(queued)) return false;
    if (room.size() < kMessageUnit) return peer.wants_room = true, false;
    MessageHeader header;
    header.terms = reduction.terms();
    header.offset = queued.of->slice.place(transfer.offset);
    header.count = transfer.count;
    std::memset(room.data(), 0, kMessageUnit);
    std::memcpy(room.data(), &header, sizeof header);
    peer.link->commit(kMessageUnit);
    room = room.subspan(kMessageUnit);
    queued.of->headers[queued.transfer] = has_moved = true;
    if (transfer.count == 0) return pop(peer.sends), true;
  }
  const std::size_t position = queued.of->positions[queued.transfer];
  const std::size_t allowed = limit(queued);
  if (allowed <= position) return has_moved;
  const Piece& piece = piece_at(transfer, position);
  std::size_t count = std::min({allowed, piece.end, position + kChunk}) - position;
  const std::size_t sent_bytes = reduction.encoded_bytes(position - transfer.offset);
  const auto bytes_for = [&](std::size_t n) {  // the last part brings the padding
    const std::size_t end = reduction.encoded_bytes(position - transfer.offset + n);
    return (position + n == transfer.end() ? padded(end) : end) - sent_bytes;
  };
  if (bytes_for(count) > room.size()) {
    const std::size_t fitting =
        room.size() < kMessageUnit ? 0 : reduction.elements_that_fit(room.size() - kMessageUnit);
    count = std::min(count, fitting / kUnit * kUnit);
    if (count == 0) return peer.wants_room = true, has_moved;
  }
  reduction.send(piece, queued.of->slice.place(position), count, room.data());
  const std::size_t bytes = bytes_for(count), encoded = reduction.encoded_bytes(count);
  if (bytes > encoded) std::memset(room.data() + encoded, 0, bytes - encoded);
  peer.link->commit(bytes);
  advance(queued, count);
  if (position + count == transfer.end()) pop(peer.sends);
  return true;
}

Result<bool> Executor::receive(int rank, Peer& peer) {
  Queued& queued = peer.receives.front();
  bool has_moved = false;
  if (!queued.has_header()) {
    const auto checked = check_header(rank, peer, queued);
    if (!checked || !*checked) return checked;
    has_moved = true;
  }
  Reduction& reduction = *queued.of->reduction;
  const PlannedTransfer& transfer = queued.planned();
  if (transfer.count == 0) return pop(peer.receives), true;
  const std::size_t position = queued.of->positions[queued.transfer];
  const std::size_t allowed = limit(queued);
  if (allowed <= position) return has_moved;
  const auto data = peer.link->readable();
  const Piece& piece = piece_at(transfer, position);
  std::size_t count = std::min({allowed, piece.end, position + kChunk}) - position;
  const std::size_t before = reduction.encoded_bytes(position - transfer.offset);
  const auto bytes_for = [&](std::size_t n) {
    const std::size_t end = reduction.encoded_bytes(position - transfer.offset + n);
    return (position + n == transfer.end() ? padded(end) : end) - before;
  };
  if (bytes_for(count) > data.size()) {
    count = std::min(count, reduction.elements_that_fit(data.size()) / kUnit * kUnit);
    if (position + count == transfer.end()) count -= std::min(count, kUnit);  // its padding has not come yet
    if (count == 0) return peer.wants_data = true, has_moved;
  }
  if (!reduction.receive(transfer.action, piece, queued.of->slice.place(position), count, data.data())) {
    return fail(ErrorCode::kPeerFailed, fmt::format("rank {} sent malformed numbers to rank {}", rank, rank_), rank);
  }
  peer.link->consume(bytes_for(count));
  advance(queued, count);
  if (position + count == transfer.end()) pop(peer.receives);
  return true;
}

Result<bool> Executor::check_header(int rank, Peer& peer, Queued& queued) {
  const auto data = peer.link->readable();
  if (data.size() < kMessageUnit) return peer.wants_data = true, false;
  MessageHeader header;
  std::memcpy(&header, data.data(), sizeof header);
  if (header.magic != MessageHeader::kMagic) {
    return fail(ErrorCode::kPeerFailed, fmt::format("rank {} sent rank {} something that is no message", rank, rank_),
                rank);
  }
  const Reduction& reduction = *queued.of->reduction;
  const PlannedTransfer& transfer = queued.planned();
  if (header.terms != reduction.terms() || header.offset != queued.of->slice.place(transfer.offset) ||
      header.count != transfer.count) {
    const bool differs = header.terms != reduction.terms();
    return disagreement(rank, header.terms, rank_, reduction.terms(), differs ? "" : ", with other segments");
  }
  peer.link->consume(kMessageUnit);
  queued.of->headers[queued.transfer] = true;
  return true;
}

void Executor::advance(const Queued& queued, std::size_t count) {
  queued.of->positions[queued.transfer] += count;
}

void Executor::pop(std::deque<Queued>& queue) {
  --queue.front().of->unfinished;
  queue.pop_front();
}

void Executor::reap() {
  std::erase_if(running_, [&](const std::unique_ptr<Running>& running) {
    if (running->unfinished > 0) return false;
    Reduction& reduction = *running->reduction;
    for (const auto& [offset, count] : running->slice.plan->untouched) {
      reduction.copy(running->slice.place(offset), count);
    }
    if (!reduction.finish_slice()) return true;
    reduction.finish(rooms_);
    reduced_elements_ += reduction.elements();
    finished_.push_back(reduction.ticket());
    return true;
  });
}

std::vector<Reduction::Ticket> Executor::take_finished() {
  return std::exchange(finished_, {});
}

std::vector<Reduction::Ticket> Executor::abandon() {
  std::vector<Reduction::Ticket> tickets;
  for (const auto& running : running_) {
    Reduction& reduction = *running->reduction;
    if (!tickets.empty() && tickets.back() == reduction.ticket()) continue;  // another slice of it
    reduction.put_back(rooms_);
    tickets.push_back(reduction.ticket());
  }
  running_.clear();
  for (Peer& peer : peers_) {
    peer.sends.clear();
    peer.receives.clear();
    peer.wants_data = peer.wants_room = false;
  }
  return tickets;
}

std::vector<int> Executor::blocking_ranks() const {
  std::vector<int> ranks;
  if (running_.empty()) return ranks;
  const auto blocks = [&](const std::deque<Queued>& queue) {  // it is the link that holds the oldest up, nothing else
    const Queued& queued = queue.front();
    const bool is_oldest = queued.of == running_.front().get();
    return is_oldest && (queued.planned().count == 0 || limit(queued) > queued.of->positions[queued.transfer]);
  };
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if ((peer.wants_data && blocks(peer.receives)) || (peer.wants_room && blocks(peer.sends))) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

}  // namespace netfold::engine
