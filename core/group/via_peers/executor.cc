#include "group/via_peers/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace netfold::group {
namespace {

using schedule::Action;

constexpr std::size_t kChunk = 16384;  // elements: large against what a turn costs, small against the second cache

std::size_t padded(std::size_t size_bytes) {
  return (size_bytes + kMessageUnit - 1) / kMessageUnit * kMessageUnit;
}

tl::unexpected<Error> malformed(int sender, int rank) {
  return fail(ErrorCode::kPeerFailed, fmt::format("rank {} sent malformed numbers to rank {}", sender, rank), sender);
}

}  // namespace

Executor::Executor(int rank, std::vector<link::StreamLink*> links) : rank_(rank), peers_(links.size()) {
  for (std::size_t peer = 0; peer < links.size(); ++peer) peers_[peer].link = links[peer];
}

void Executor::submit(const std::shared_ptr<Reduction>& reduction, const std::vector<Slice>& slices) {
  reduction->start(buffers_, slices.size());
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
    header.offset = queued.said_offset();
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
  if (bytes_of(queued, count) > room.size()) {
    const std::size_t fitting =
        room.size() < kMessageUnit ? 0 : reduction.elements_that_fit(room.size() - kMessageUnit);
    count = std::min(count, fitting / numbers::kBlockMax * numbers::kBlockMax);
    if (count == 0) return peer.wants_room = true, has_moved;
  }
  reduction.send(piece, queued.of->slice.place(position), count, room.data());
  const std::size_t bytes = bytes_of(queued, count), encoded = reduction.encoded_bytes(count);
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
  const PlannedTransfer& transfer = queued.planned();
  if (transfer.count == 0) return pop(peer.receives), true;
  if (transfer.action == Action::kFold && !queued.of->slice.plan->together.empty()) {
    const auto folded = fold_together(queued);
    return folded ? Result<bool>(*folded || has_moved) : folded;
  }
  const std::size_t position = queued.of->positions[queued.transfer];
  const std::size_t allowed = limit(queued);
  if (allowed <= position) return has_moved;
  const auto data = peer.link->readable();
  const Piece& piece = piece_at(transfer, position);
  const std::size_t count = arrived(queued, std::min(allowed, piece.end) - position, data.size());
  if (count == 0) return peer.wants_data = true, has_moved;
  Reduction& reduction = *queued.of->reduction;
  if (!reduction.is_well_formed(data.data(), count)) return malformed(rank, rank_);
  reduction.receive(transfer.action, rank, piece, queued.of->slice.place(position), count, data.data());
  consume(peer, count);
  return true;
}

// As far as the elements of all ranks have come. Until every peer's queue has come to this segment, nothing moves.
Result<bool> Executor::fold_together(const Queued& queued) {
  Running& running = *queued.of;
  const auto& transfers = running.slice.plan->transfers;
  const std::vector<std::uint32_t>& together = running.slice.plan->together;
  const std::size_t position = running.positions[queued.transfer];
  const Piece& piece = piece_at(transfers[together.front()], position);  // the others' follow it
  std::size_t count = piece.end - position;
  for (const std::uint32_t each : together) {
    const Peer& peer = peers_[static_cast<std::size_t>(transfers[each].peer)];
    const Queued& front = peer.receives.front();
    if (front.of != &running || front.transfer != each || !front.has_header()) return false;
    count = std::min(count, std::max(limit(front), position) - position);
  }
  if (count == 0) return false;
  bool is_here = true;
  for (const std::uint32_t each : together) {
    Peer& peer = peers_[static_cast<std::size_t>(transfers[each].peer)];
    const std::size_t here = arrived(peer.receives.front(), count, peer.link->readable().size());
    if (here == 0) peer.wants_data = true, is_here = false;
    count = std::max<std::size_t>(std::min(count, here), 1);
  }
  if (!is_here) return false;
  if (!all_) all_.emplace(peers_.size(), kChunk);
  for (const std::uint32_t each : together) {
    const int rank = transfers[each].peer;
    const std::byte* const payload = peers_[static_cast<std::size_t>(rank)].link->readable().data();
    if (!running.reduction->is_well_formed(payload, count)) return malformed(rank, rank_);
    all_->payloads[static_cast<std::size_t>(rank)] = payload;
  }
  running.reduction->fold_all(piece, running.slice.place(position), count, *all_);
  for (const std::uint32_t each : together) consume(peers_[static_cast<std::size_t>(transfers[each].peer)], count);
  return true;
}

// How many of the next `wanted` elements can be taken now: all, or whole units.
std::size_t Executor::arrived(const Queued& queued, std::size_t wanted, std::size_t readable_bytes) {
  const std::size_t count = std::min(wanted, kChunk);
  if (bytes_of(queued, count) <= readable_bytes) return count;
  std::size_t fitting = queued.of->reduction->elements_that_fit(readable_bytes);
  // At its end the elements may all be here, and the padding not.
  const PlannedTransfer& transfer = queued.planned();
  if (queued.of->positions[queued.transfer] + count == transfer.end()) fitting = std::min(fitting, count - 1);
  return std::min(count, fitting / numbers::kBlockMax * numbers::kBlockMax);
}

// What the next `count` elements of a transfer take; the last part brings the padding.
std::size_t Executor::bytes_of(const Queued& queued, std::size_t count) {
  const PlannedTransfer& transfer = queued.planned();
  const std::size_t done = queued.of->positions[queued.transfer] - transfer.offset;
  const std::size_t end = queued.of->reduction->encoded_bytes(done + count);
  const bool is_last = transfer.offset + done + count == transfer.end();
  return (is_last ? padded(end) : end) - queued.of->reduction->encoded_bytes(done);
}

void Executor::consume(Peer& peer, std::size_t count) {
  const Queued& queued = peer.receives.front();
  peer.link->consume(bytes_of(queued, count));
  advance(queued, count);
  if (queued.of->positions[queued.transfer] == queued.planned().end()) pop(peer.receives);
}

Result<bool> Executor::check_header(int rank, Peer& peer, Queued& queued) {
  const auto data = peer.link->readable();
  if (data.size() < kMessageUnit) return peer.wants_data = true, false;
  MessageHeader header;
  std::memcpy(&header, data.data(), sizeof header);
  if (header.magic != MessageHeader::kMagic) {
    return fail(ErrorCode::kPeerFailed,
                fmt::format("rank {} sent rank {} something that is not a message", rank, rank_), rank);
  }
  const Reduction& reduction = *queued.of->reduction;
  const PlannedTransfer& transfer = queued.planned();
  if (header.terms != reduction.terms() || header.offset != queued.said_offset() || header.count != transfer.count) {
    const bool differs = header.terms != reduction.terms();
    if (!differs && !queued.of->slice.plan->has_common_places) {
      return fail(
          ErrorCode::kMismatch,
          fmt::format("rank {} sends rank {} {} elements in {}, and rank {} awaits {}: both ranks must give the "
                      "same sizes",
                      rank, rank_, header.count, in_words(reduction.terms()), rank_, transfer.count),
          rank);
    }
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
    reduction.finish(buffers_);
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
    reduction.put_back(buffers_);
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

}  // namespace netfold::group
