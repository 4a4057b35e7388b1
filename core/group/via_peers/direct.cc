#include "group/via_peers/direct.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/streaming.h"
#include "numbers/codec.h"

namespace netfold::group {
namespace {

using link::Arena;

constexpr std::size_t kElementBytes = 4;                   // the most that one takes in a room
constexpr std::size_t kArenaBytes = std::size_t{8} << 20;  // all ranks' buffers fit a third-level cache
constexpr std::size_t kChunkBytesMin = std::size_t{64} << 10, kChunkBytesMax = std::size_t{512} << 10;
constexpr std::size_t kSummedByAllBytes = 8192;                // summing all of it is cheaper than waiting once more
constexpr std::size_t kStreamingBytes = std::size_t{8} << 20;  // tensors that do not stay in a cache anyway
constexpr std::size_t kSlack = 1024;                           // bytes: for a last block's padding
constexpr std::uint64_t kCompared = Arena::kRemembered / 2;
constexpr std::size_t kCopyTile =
    16384;  // elements: at home in a second cache, and a memcpy that takes its fastest way

std::size_t chunk_bytes_for(int world) {
  const std::size_t each = kArenaBytes / (static_cast<std::size_t>(world) * Arena::kRooms);
  return std::clamp(each, kChunkBytesMin, kChunkBytesMax) / (numbers::kBlockMax * kElementBytes) *
         (numbers::kBlockMax * kElementBytes);
}

}  // namespace

Arena::Shape DirectExecutor::shape_for(int world) {
  const std::size_t chunk = chunk_bytes_for(world);
  const std::size_t units = chunk / (numbers::kBlockMax * kElementBytes);
  const std::size_t units_each = (units + static_cast<std::size_t>(world) - 1) / static_cast<std::size_t>(world);
  return {chunk + kSlack, units_each * numbers::kBlockMax * kElementBytes + kSlack};
}

DirectExecutor::DirectExecutor(int rank, std::unique_ptr<Arena> arena,
                               std::vector<std::shared_ptr<link::Doorbell>> bells)
    : rank_(rank),
      world_(arena->world()),
      arena_(std::move(arena)),
      bells_(std::move(bells)),
      chunk_elements_(chunk_bytes_for(world_) / kElementBytes),
      folder_(chunk_elements_, static_cast<std::size_t>(world_)),
      payloads_(static_cast<std::size_t>(world_)),
      small_sum_(kSummedByAllBytes + kSlack),
      seen_(static_cast<std::size_t>(world_)),
      cores_(static_cast<std::size_t>(world_)) {}

void DirectExecutor::announce(const Terms& terms) {
  std::memcpy(arena_->operation_note(rank_, terms.number), &terms, sizeof terms);
  arena_->counters(rank_).operations.store(terms.number, std::memory_order_release);
}

std::span<const int> DirectExecutor::say_core(int core) {
  std::atomic<int>& own_core = arena_->counters(rank_).core;
  if (own_core.load(std::memory_order_relaxed) != core) own_core.store(core, std::memory_order_relaxed);
  for (int rank = 0; rank < world_; ++rank) {
    cores_[static_cast<std::size_t>(rank)] = arena_->counters(rank).core.load(std::memory_order_relaxed);
  }
  return cores_;
}

Result<void> DirectExecutor::check_agreement() const {
  const std::uint64_t own_last = arena_->counters(rank_).operations.load(std::memory_order_relaxed);
  for (int rank = 0; rank < world_; ++rank) {
    const std::uint64_t its_last = arena_->counters(rank).operations.load(std::memory_order_acquire);
    // Half of what is remembered: the rest may be written anew while we read.
    const std::uint64_t oldest = std::max(own_last, its_last) - std::min(std::max(own_last, its_last), kCompared);
    for (std::uint64_t number = oldest + 1; number <= std::min(own_last, its_last); ++number) {
      Terms own_terms, its_terms;
      std::memcpy(&own_terms, arena_->operation_note(rank_, number), sizeof own_terms);
      std::memcpy(&its_terms, arena_->operation_note(rank, number), sizeof its_terms);
      if (its_terms != own_terms) return disagreement(rank, its_terms, rank_, own_terms);
    }
  }
  return {};
}

void DirectExecutor::submit(Ticket ticket, const CollectiveRequest& request, const Terms& terms) {
  const numbers::WireFormat wire{request.format, request.bfp};
  const auto operation = std::make_shared<Operation>(Operation{ticket, static_cast<const std::byte*>(request.in),
                                                               static_cast<std::byte*>(request.out), request.count,
                                                               request.type, request.average, wire, terms});
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(chunk_elements_, request.count - first);
    const bool is_small = numbers::encoded_bytes(wire, count) <= kSummedByAllBytes;
    chunks_.push_back({operation, first, count, is_small});
    ++operation->chunks;
    first += count;
  } while (first < request.count);
  if (operation->chunks > 1 && request.is_in_place()) {
    operation->undo.start(request.out, request.count * operation->element_bytes(), buffers_);
  }
  own().submitted = own().taken + chunks_.size();
  is_published_ = false;
}

Result<bool> DirectExecutor::pump() {
  if (sleeps_) {
    sleeps_ = false;
    arena_->counters(rank_).sleeps.store(0, std::memory_order_relaxed);
  }
  bool has_moved = false;
  while (!is_idle()) {
    const auto moved = move();
    if (!moved) return moved;
    if (!*moved) break;
    has_moved = true;
    // After our last move other ranks wait only for our next contribution. To say it now would cost two ranks that take
    // turns the counters' cache line once more.
    if (is_idle()) break;
    publish();
    wake_others();
  }
  if (!is_idle() && !is_published_) publish();
  return has_moved;
}

// Our next one, if there is one.
Result<bool> DirectExecutor::move() {
  look();
  if (can_take(rank_)) {
    take();
  } else if (can_fold(rank_)) {
    if (const auto folded = fold(); !folded) return tl::unexpected(folded.error());
  } else if (can_contribute(rank_)) {
    contribute();
  } else {
    return false;
  }
  is_published_ = false;
  return true;
}

void DirectExecutor::look() {
  std::uint64_t contributed = own().contributed, folded = own().folded, taken = own().taken;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    const Arena::Counters& counters = arena_->counters(rank);
    Progress& seen = seen_[static_cast<std::size_t>(rank)];
    seen.taken = counters.taken.load(std::memory_order_acquire);
    seen.folded = counters.folded.load(std::memory_order_acquire);
    seen.contributed = counters.contributed.load(std::memory_order_acquire);
    seen.submitted = counters.submitted.load(std::memory_order_acquire);
    contributed = std::min(contributed, seen.contributed);
    folded = std::min(folded, seen.folded);
    taken = std::min(taken, seen.taken);
  }
  all_contributed_ = contributed, all_folded_ = folded, all_taken_ = taken;
}

void DirectExecutor::publish() {
  Arena::Counters& counters = arena_->counters(rank_);
  counters.submitted.store(own().submitted, std::memory_order_release);
  counters.contributed.store(own().contributed, std::memory_order_release);
  counters.folded.store(own().folded, std::memory_order_release);
  counters.taken.store(own().taken, std::memory_order_release);
  is_published_ = true;
}

// The fence puts the new counters before the look at who sleeps; arm() does the opposite. So one of the two sees what
// the other did, and of several ranks that move at once at least the last sees all.
void DirectExecutor::wake_others() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool has_looked = false;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_ || arena_->counters(rank).sleeps.load(std::memory_order_relaxed) == 0) continue;
    if (!has_looked) look();
    has_looked = true;
    if (can_move(rank) && arena_->counters(rank).sleeps.exchange(0) != 0) {
      bells_[static_cast<std::size_t>(rank)]->ring();
    }
  }
}

bool DirectExecutor::arm() {
  if (is_idle()) return true;
  sleeps_ = true;
  arena_->counters(rank_).sleeps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  look();
  return !can_move(rank_);
}

// A buffer is free again when all ranks have read it.
bool DirectExecutor::can_contribute(int rank) const {
  const Progress& seen = seen_[static_cast<std::size_t>(rank)];
  return seen.contributed < seen.submitted && seen.contributed < all_folded_ + Arena::kRooms;
}

bool DirectExecutor::can_fold(int rank) const {
  const Progress& seen = seen_[static_cast<std::size_t>(rank)];
  if (seen.folded >= all_contributed_ || seen.folded >= seen.submitted) return false;
  if (is_small(seen.folded)) return seen.taken == seen.folded;  // it is taken at once, in its turn
  return seen.folded < all_taken_ + Arena::kRooms;
}

bool DirectExecutor::can_take(int rank) const {
  const Progress& seen = seen_[static_cast<std::size_t>(rank)];
  return seen.taken < all_folded_ && seen.taken < seen.folded;
}

// An operation that we do not know was not submitted by us: then no rank has folded it.
bool DirectExecutor::is_small(std::uint64_t number) const {
  return number >= own().taken && number < own().submitted && chunk(number).is_small;
}

schedule::Segment DirectExecutor::segment_of(const Chunk& chunk, int rank) const {
  return schedule::part_of({0, chunk.count}, world_, rank, numbers::kBlockMax);
}

void DirectExecutor::contribute() {
  const std::uint64_t number = own().contributed;
  const Chunk& chunk = this->chunk(number);
  const Operation& operation = *chunk.of;
  const MessageHeader note{.terms = operation.terms, .offset = chunk.first, .count = chunk.count};
  std::memcpy(arena_->chunk_note(rank_, number), &note, sizeof note);

  const schedule::Segment ours = segment_of(chunk, rank_);
  const std::size_t behind = ours.offset + ours.count;
  if (folds_as_it_lies(chunk)) {
    contribute(chunk, {0, ours.offset});
    contribute(chunk, {behind, chunk.count - behind});
    save(chunk, ours);
  } else {
    contribute(chunk, {0, chunk.count});
  }
  ++own().contributed;
}

// No other rank sums our segment: where a tensor is its own encoding, we need not write that part for ourselves.
bool DirectExecutor::folds_as_it_lies(const Chunk& chunk) const {
  return !chunk.is_small && numbers::is_same(chunk.of->type, chunk.of->wire.format);
}

void DirectExecutor::contribute(const Chunk& chunk, schedule::Segment segment) {
  const Operation& operation = *chunk.of;
  std::byte* const to = arena_->contribution(rank_, own().contributed);
  for (std::size_t done = 0; done < segment.count; done += kCopyTile) {
    const schedule::Segment tile{segment.offset + done, std::min(kCopyTile, segment.count - done)};
    numbers::encode(operation.wire, operation.type, input(chunk, tile.offset), tile.count,
                    to + numbers::encoded_bytes(operation.wire, tile.offset));
    save(chunk, tile);  // while it is in the second cache
  }
}

const std::byte* DirectExecutor::input(const Chunk& chunk, std::size_t element) {
  return chunk.of->in + (chunk.first + element) * chunk.of->element_bytes();
}

std::byte* DirectExecutor::output(const Chunk& chunk, std::size_t element) {
  return chunk.of->out + (chunk.first + element) * chunk.of->element_bytes();
}

void DirectExecutor::save(const Chunk& chunk, schedule::Segment segment) {
  const std::size_t element_bytes = chunk.of->element_bytes();
  chunk.of->undo.save((chunk.first + segment.offset) * element_bytes, segment.count * element_bytes, &streaming_copy);
}

Result<void> DirectExecutor::fold() {
  const Chunk& chunk = this->chunk(own().folded);
  if (const auto agreed = check_notes(chunk); !agreed) return agreed;
  if (chunk.is_small) {
    const schedule::Segment all{0, chunk.count};
    std::byte* const to = chunk.of->is_its_encoding() ? output(chunk, 0) : small_sum_.data();
    if (const auto summed = sum(chunk, all, to); !summed) return summed;
    if (to == small_sum_.data()) write(chunk, all, to);
    ++own().folded;
    finish_chunk();
    return {};
  }
  if (const auto summed = sum(chunk, segment_of(chunk, rank_), arena_->sum(rank_, own().folded)); !summed) {
    return summed;
  }
  ++own().folded;
  return {};
}

Result<void> DirectExecutor::check_notes(const Chunk& chunk) const {
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    MessageHeader note;
    std::memcpy(&note, arena_->chunk_note(rank, own().folded), sizeof note);
    if (note.terms == chunk.of->terms && note.offset == chunk.first && note.count == chunk.count) continue;
    return disagreement(rank, note.terms, rank_, chunk.of->terms);
  }
  return {};
}

Result<void> DirectExecutor::sum(const Chunk& chunk, schedule::Segment segment, std::byte* to) {
  if (segment.count == 0) return {};
  const numbers::WireFormat wire = chunk.of->wire;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_ && folds_as_it_lies(chunk)) {
      payloads_[static_cast<std::size_t>(rank)] = input(chunk, segment.offset);
      continue;
    }
    const std::byte* const from =
        arena_->contribution(rank, own().folded) + numbers::encoded_bytes(wire, segment.offset);
    if (!numbers::is_well_formed(wire, from, segment.count)) {
      return fail(ErrorCode::kPeerFailed, fmt::format("rank {} gave rank {} malformed numbers", rank, rank_), rank);
    }
    payloads_[static_cast<std::size_t>(rank)] = from;
  }
  folder_.fold(wire, payloads_, segment.count, to);
  return {};
}

void DirectExecutor::take() {
  const std::uint64_t number = own().taken;
  const Chunk& chunk = this->chunk(number);
  for (int rank = 0; rank < world_; ++rank) write(chunk, segment_of(chunk, rank), arena_->sum(rank, number));
  finish_chunk();
}

void DirectExecutor::write(const Chunk& chunk, schedule::Segment segment, const std::byte* from) const {
  const Operation& operation = *chunk.of;
  const std::size_t element_bytes = operation.element_bytes();
  std::byte* const to = output(chunk, segment.offset);
  if (operation.is_its_encoding() && operation.count * element_bytes >= kStreamingBytes) {
    return streaming_copy(to, from, segment.count * element_bytes);
  }
  numbers::decode(operation.wire, operation.type, from, segment.count, to,
                  operation.average ? static_cast<std::uint32_t>(world_) : 1U);
}

void DirectExecutor::finish_chunk() {
  Operation& operation = *chunks_.front().of;
  if (--operation.chunks == 0) {
    operation.undo.finish(buffers_);
    reduced_elements_ += operation.count;
    finished_.push_back(operation.ticket);
  }
  ++own().taken;
  chunks_.pop_front();
}

std::vector<DirectExecutor::Ticket> DirectExecutor::take_finished() {
  return std::exchange(finished_, {});
}

std::vector<DirectExecutor::Ticket> DirectExecutor::abandon() {
  std::vector<Ticket> tickets;
  for (const Chunk& chunk : chunks_) {
    Operation& operation = *chunk.of;
    if (!tickets.empty() && tickets.back() == operation.ticket) continue;
    tickets.push_back(operation.ticket);
    operation.undo.put_back();
    operation.undo.finish(buffers_);
  }
  chunks_.clear();
  return tickets;
}

std::vector<int> DirectExecutor::blocking_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank != rank_ && waits_for(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// It should have submitted what we have submitted.
bool DirectExecutor::waits_for(int rank) const {
  const Progress& seen = seen_[static_cast<std::size_t>(rank)];
  const bool is_late = seen.submitted < own().submitted && seen.contributed == seen.submitted &&
                       seen.contributed < all_folded_ + Arena::kRooms;
  return !is_idle() && (is_late || can_move(rank));
}

}  // namespace netfold::group
