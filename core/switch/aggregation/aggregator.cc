#include "switch/aggregation/aggregator.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/memory_units.h"

namespace netfold::switching {
namespace {

using wire::Header;
using wire::Kind;

// A worker that leaps ahead is asked for so many chunks at a time; its next contribution goes on from there.
constexpr int kNoticesAtOnce = 32;

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}
std::size_t payload_stride(const wire::Lease& lease) {
  return round_up(lease.payload_bytes, kCacheLineBytes);
}
std::size_t result_stride(const wire::Lease& lease) {
  return round_up(wire::kHeaderBytes + lease.payload_bytes + wire::kTagBytes, kCacheLineBytes);
}
std::uint32_t slots_of_a_shard(const wire::Lease& lease) {
  return lease.slots / lease.shards;
}
// In a tree, a worker's payload may have to be widened.
bool copies_payloads(const wire::Lease& lease, Payloads payloads) {
  return payloads == Payloads::kCopied || lease.is_tree;
}
std::uint32_t words_for(std::uint16_t world) {
  return (world + 63u) / 64u;
}

// The longest chunk any format can have: 1 element takes at least 3/8 of a byte (bfp with mantissa 2).
std::size_t elements_max(const wire::Lease& lease) {
  std::size_t most = 0;
  for (const auto format : {numbers::Format::kFp16, numbers::Format::kBfp}) {
    most = std::max(most, numbers::elements_that_fit(lease.wire_format(format), lease.payload_bytes));
  }
  return most;
}

bool agree(const Header& a, const Header& b) {
  return a.kind == b.kind && a.owner == b.owner && a.format == b.format && a.count == b.count &&
         ((a.flags ^ b.flags) & wire::kTermFlags) == 0;
}

std::string describe(const Header& header) {
  if (header.kind == Kind::kCopy && header.count == 0) return "a barrier";
  if (header.kind == Kind::kCopy) {
    return fmt::format("{} bytes of rank {} to gather or broadcast{}", header.count, header.owner,
                       (header.flags & wire::kLast) != 0 ? " (the last of the tensor)" : "");
  }
  const std::string to = header.kind == Kind::kScatter ? fmt::format(" for rank {} to reduce-scatter", header.owner)
                                                       : std::string(" to all-reduce");
  return fmt::format("{} {} elements{}{}{}", header.count, numbers::name_of(header.format), to,
                     (header.flags & wire::kAverage) != 0 ? " and average" : "",
                     (header.flags & wire::kLast) != 0 ? " (the last of the tensor)" : "");
}

}  // namespace

Aggregator::Aggregator(const wire::Lease& lease, std::uint16_t shard, Payloads payloads, Tree tree)
    : lease_(lease),
      shard_(shard),
      payloads_are_(payloads),
      tree_(std::move(tree)),
      folds_sums_(tree_.has_switches()),
      named_(tree_.contributors.size()),
      shard_bits_(std::countr_zero(lease.shards)),
      arrival_words_(words_for(lease.world)),
      slots_(slots_of_a_shard(lease)),
      arrivals_(slots_.size() * arrival_words_),
      inputs_(slots_.size() * lease.world),
      payloads_(copies_payloads(lease, payloads) ? inputs_.size() * payload_stride(lease) : 0),
      results_(payloads == Payloads::kLent ? 0 : slots_.size() * result_stride(lease)),
      dones_(slots_.size()),
      gap_checked_(lease.world, lease.first_chunk_of(shard)),
      folder_(elements_max(lease), lease.world) {
  assert(std::has_single_bit(lease.slots) && std::has_single_bit(lease.shards) && lease.shards <= lease.slots);
  assert(lease.world > 0 && shard < lease.shards);
  assert(tree_.contributors.empty() || tree_.contributors.size() == lease.world);
  std::uint32_t chunk = lease.first_chunk_of(shard);
  for (std::size_t i = 0; i < slots_.size(); ++i, chunk += lease.shards) {
    Slot& slot = slots_[place_of(chunk)];
    slot.chunk = chunk;
    if (!results_.empty()) slot.result = results_.data() + place_of(chunk) * result_stride(lease);
  }
}

std::size_t Aggregator::memory_bytes(const wire::Lease& lease, Payloads payloads) {
  const std::size_t own = sizeof(Slot) + sizeof(std::optional<wire::ShortPacket>) +
                          words_for(lease.world) * sizeof(std::uint64_t) + lease.world * sizeof(void*);
  const std::size_t copies = copies_payloads(lease, payloads) ? lease.world * payload_stride(lease) : 0;
  const std::size_t result = payloads == Payloads::kLent ? 0 : result_stride(lease);
  return slots_of_a_shard(lease) * (own + copies + result);
}

Verdict Aggregator::on_packet(const wire::Packet& packet, Nanoseconds now, AggregatorOutput& outbox) {
  const Header& header = packet.header;
  assert(header.worker < lease_.world || header.kind == Kind::kAwait);
  const bool is_in_slot = wire::has_owner(header.kind) || header.slot == lease_.slot_of(header.chunk);
  if (!is_in_slot || lease_.shard_of(header.chunk) != shard_) return Verdict::kBadSlot;
  switch (header.kind) {
    case Kind::kScatter:
    case Kind::kCopy:
    case Kind::kContribution: return on_contribution(packet, outbox);
    case Kind::kProbe: return on_probe(header, outbox);
    case Kind::kAwait: return on_await(header, outbox);
    case Kind::kEcho: return on_echo(header, now, outbox);
    case Kind::kWaiting: return on_waiting_below(header);
    default: return Verdict::kBadKind;
  }
}

Verdict Aggregator::on_contribution(const wire::Packet& packet, AggregatorOutput& outbox) {
  const Header& header = packet.header;
  const std::uint32_t index = place_of(header.chunk);
  Slot& slot = slots_[index];
  const bool is_copy = header.kind == Kind::kCopy;
  const bool is_like_first = slot.arrived > 0 && !is_copy && agree(slot.first, header) &&
                             packet.payload.size() == slot.payload_bytes && !folds_sums_;
  if (!is_like_first && !has_right_length(packet)) return Verdict::kBadLength;
  if (header.chunk != slot.chunk) {
    const bool is_kept_result = slot.has_result && header.chunk == slot.chunk - lease_.slots;
    return is_kept_result ? Verdict::kDuplicate : Verdict::kStaleChunk;
  }
  if (has_arrived(index, header.worker)) return Verdict::kDuplicate;
  const bool is_partial = (header.flags & wire::kPartial) != 0;
  if (!is_copy && is_partial != tree_.is_switch(header.worker)) return Verdict::kBadKind;
  if (!is_partial && header.format == numbers::Format::kBfp &&
      !numbers::kernels().bfp_is_well_formed(lease_.bfp, packet.payload.data(), header.count)) {
    return Verdict::kMalformedBlock;
  }
  if (slot.arrived == 0) {
    slot.first = header;
    slot.payload_bytes = static_cast<std::uint32_t>(packet.payload.size());
  } else if (!agree(slot.first, header)) {
    report_mismatch(slot, header, outbox);
    return Verdict::kMismatch;
  }

  const bool is_last = slot.arrived + 1 == lease_.world;
  if (is_last && !take_room(index, folded_payload_bytes(slot.first), outbox)) return Verdict::kNoRoom;
  inputs_[std::size_t{index} * lease_.world + header.worker] = keep(index, packet);
  arrivals_[index * arrival_words_ + header.worker / 64] |= std::uint64_t{1} << (header.worker % 64);
  ++slot.arrived;
  look_for_gaps(header.worker, header.chunk, outbox);
  if (slot.arrived < lease_.world) return Verdict::kKept;
  complete(index, outbox);
  return Verdict::kFolded;
}

// Memory for the slot's next packet: its own where payloads are copied, else the outbox's. False: all of that is in
// use, and the slot keeps what it has.
bool Aggregator::take_room(std::uint32_t index, std::size_t payload_bytes, AggregatorOutput& outbox) {
  if (payloads_are_ == Payloads::kCopied) return true;
  std::byte* const room = outbox.room_for_result(index, wire::kHeaderBytes + payload_bytes + wire::kTagBytes);
  if (room != nullptr) slots_[index].result = room;
  return room != nullptr;
}

void Aggregator::complete(std::uint32_t index, AggregatorOutput& outbox) {
  const Slot& slot = slots_[index];
  const auto inputs = std::span(inputs_).subspan(std::size_t{index} * lease_.world, lease_.world);
  std::byte* const to = slot.result + wire::kHeaderBytes;
  if (slot.first.kind == Kind::kCopy) {
    write_copy(index);
  } else {
    folder_.fold(lease_.wire_format(slot.first.format), inputs, slot.first.count, to,
                 {.in = folds_sums_, .out = tree_.above.has_value()});
  }
  if (tree_.above) return send_up(index, outbox);
  publish(index, result_payload_bytes(slot.first), outbox);
}

// The owner's bytes, if it is here.
void Aggregator::write_copy(std::uint32_t index) {
  const Slot& slot = slots_[index];
  const std::uint16_t owner = place_of_owner(slot.first);
  if (owner == wire::kSwitchWorker || slot.first.count == 0) return;
  std::memcpy(slot.result + wire::kHeaderBytes, inputs_[std::size_t{index} * lease_.world + owner], slot.first.count);
}

// The chunk's result lies behind the place of its header: sends it to those who get it, and opens the slot for its next
// chunk.
void Aggregator::publish(std::uint32_t index, std::size_t payload_bytes, AggregatorOutput& outbox) {
  Slot& slot = slots_[index];
  const bool is_copy = slot.first.kind == Kind::kCopy;
  Header header = lease_.header(is_copy ? Kind::kCopied : Kind::kResult, wire::kSwitchWorker, slot.chunk);
  header.format = slot.first.format;
  header.count = slot.first.count;
  header.flags |= slot.first.flags & wire::kTermFlags;
  std::byte* const packet = slot.result;
  const wire::HeaderBytes head = wire::emit(header);
  std::memcpy(packet, head.data(), head.size());
  slot.result_bytes = static_cast<std::uint32_t>(wire::kHeaderBytes + payload_bytes);
  lease_.reach(slot.chunk);
  if (tree_.above) tree_.above->lease.reach(slot.chunk);
  if (lease_.keys) {
    const wire::Tag tag = lease_.tag(slot.chunk, head, {packet + wire::kHeaderBytes, payload_bytes});
    std::memcpy(packet + slot.result_bytes, tag.data(), tag.size());
    slot.result_bytes += wire::kTagBytes;
  }

  slot.has_result = true;
  slot.receivers = receivers_of(slot.first);
  slot.chunk += lease_.slots;
  slot.arrived = 0;
  slot.is_up = false;
  std::fill_n(arrivals_.begin() + index * arrival_words_, arrival_words_, 0);
  if (slot.receivers.who == Receivers::Who::kAll) {
    outbox.result_to_all(index, {packet, slot.result_bytes});
  } else {
    publish_to_some(index, header.chunk, outbox);
  }
  const bool is_awaited = awaited_left_ > 0 && static_cast<std::int32_t>(awaited_ - header.chunk) > 0;
  if (is_awaited && --awaited_left_ == 0) tell_host(outbox);
}

void Aggregator::publish_to_some(std::uint32_t index, std::uint32_t chunk, AggregatorOutput& outbox) {
  const Slot& slot = slots_[index];
  const auto done = dones_[index].emplace(lease_, Kind::kDone, wire::kSwitchWorker, chunk).bytes();
  const bool is_nothing = slot.receivers.who == Receivers::Who::kNone;
  outbox.result_to_some(
      index, is_nothing ? std::span<const std::byte>{} : std::span<const std::byte>{slot.result, slot.result_bytes},
      done, slot.receivers);
}

Verdict Aggregator::on_probe(const Header& header, AggregatorOutput& outbox) {
  tell_missing_after(header, outbox);
  const std::uint32_t index = place_of(header.chunk);
  const Slot& slot = slots_[index];
  if (slot.has_result && header.chunk == slot.chunk - lease_.slots) {
    if (!slot.receivers.have(header.worker)) {
      outbox.notice(header.worker, dones_[index]->bytes());
      return Verdict::kAnswered;
    }
    outbox.result_to_one(header.worker, index, {slot.result, slot.result_bytes});
    return Verdict::kAnswered;
  }
  if (header.chunk != slot.chunk) return Verdict::kStaleChunk;
  if (slot.is_up) {
    ask_above(header.worker, header.count, index, outbox);
  } else if (has_arrived(index, header.worker)) {
    send_notice(Kind::kWaiting, header.worker, ask_who_is_missing(index, outbox), header.chunk, outbox);
  } else {
    send_notice(Kind::kMissing, header.worker, tree_.rank_of(header.worker), header.chunk, outbox);
  }
  return Verdict::kAnswered;
}

// Which of the chunks that the prober sent after the probed one are not here: it learns of a burst of losses at once.
void Aggregator::tell_missing_after(const Header& probe, AggregatorOutput& outbox) {
  const std::uint32_t last = probe.chunk + std::min<std::uint32_t>(probe.count, lease_.slots - 1);
  int notices = 0;
  for (std::uint32_t chunk = probe.chunk + lease_.shards;
       static_cast<std::int32_t>(last - chunk) >= 0 && notices < kNoticesAtOnce; chunk += lease_.shards) {
    if (tell_if_missing(probe.worker, chunk, outbox)) ++notices;
  }
}

// Whether the slot waits for this chunk of the worker.
bool Aggregator::tell_if_missing(std::uint16_t worker, std::uint32_t chunk, AggregatorOutput& outbox) {
  const std::uint32_t index = place_of(chunk);
  if (slots_[index].chunk != chunk || has_arrived(index, worker)) return false;
  send_notice(Kind::kMissing, worker, tree_.rank_of(worker), chunk, outbox);
  return true;
}

// Only the last question counts: a host that asks again has lost the answer, or wants to know something else.
Verdict Aggregator::on_await(const Header& header, AggregatorOutput& outbox) {
  awaited_ = header.chunk;
  awaited_left_ = 0;
  for (const Slot& slot : slots_) {
    // A slot expects `chunk`, then every chunk lease_.slots later.
    const auto distance = static_cast<std::int32_t>(awaited_ - slot.chunk);
    if (distance > 0) awaited_left_ += (static_cast<std::uint32_t>(distance) + lease_.slots - 1) / lease_.slots;
  }
  if (awaited_left_ > 0) return Verdict::kAwaited;
  tell_host(outbox);
  return Verdict::kAnswered;
}

// A worker sends its chunks in order, so one that is overtaken by kReorderSlackChunks later ones is probably lost. Each
// chunk is asked for once from here; if that is lost too, the worker's own probes find out.
void Aggregator::look_for_gaps(std::uint16_t worker, std::uint32_t chunk, AggregatorOutput& outbox) {
  std::uint32_t& checked = gap_checked_[worker];
  const auto is_overtaken = [&](std::uint32_t candidate) {
    return static_cast<std::int32_t>(chunk - candidate) >=
           static_cast<std::int32_t>(wire::kReorderSlackChunks * lease_.shards);
  };
  for (int notices = 0; is_overtaken(checked) && notices < kNoticesAtOnce; checked += lease_.shards) {
    if (tell_if_missing(worker, checked, outbox)) ++notices;
  }
}

void Aggregator::send_notice(Kind kind, std::uint16_t to, std::uint16_t about_rank, std::uint32_t chunk,
                             AggregatorOutput& outbox, std::uint16_t count) {
  const wire::ShortPacket packet(lease_, kind, about_rank, chunk, count);
  outbox.notice(to, packet.bytes());
}

void Aggregator::tell_host(AggregatorOutput& outbox) {
  const wire::ShortPacket packet(lease_, Kind::kComplete, wire::kSwitchWorker, awaited_);
  outbox.complete(packet.bytes());
}

void Aggregator::report_mismatch(const Slot& slot, const Header& header, AggregatorOutput& outbox) {
  outbox.mismatch(tree_.rank_of(header.worker),
                  fmt::format("{} offers {} in chunk {} where {} offers {}: all ranks must submit the same "
                              "collectives, in the same order, with the same counts, formats and operations",
                              tree_.name_of(header.worker), describe(header), header.chunk,
                              tree_.name_of(slot.first.worker), describe(slot.first)));
}

// Where the payload lies from now on until it is folded.
const std::byte* Aggregator::keep(std::uint32_t index, const wire::Packet& packet) {
  const Header& header = packet.header;
  // A worker among switches: widened, as their sums are.
  const bool widens = folds_sums_ && header.kind != Kind::kCopy && (header.flags & wire::kPartial) == 0;
  if (payloads_are_ == Payloads::kLent && !widens) return packet.payload.data();
  std::byte* const copy =
      payloads_.data() + (std::size_t{index} * lease_.world + header.worker) * payload_stride(lease_);
  if (widens) {
    const std::byte* const alone = packet.payload.data();
    folder_.fold(lease_.wire_format(header.format), {&alone, 1}, header.count, copy, {.out = true});
  } else if (!packet.payload.empty()) {
    std::memcpy(copy, packet.payload.data(), packet.payload.size());
  }
  return copy;
}

// A contribution's. Of a copy only the contributor that the owner is, or is below, has bytes.
bool Aggregator::has_right_length(const wire::Packet& packet) const {
  const Header& header = packet.header;
  if (header.kind == Kind::kCopy) {
    const std::size_t length = header.worker == place_of_owner(header) ? header.count : 0;
    return packet.payload.size() == length && header.count <= lease_.payload_bytes;
  }
  // In a tree each chunk's sum must fit, too, before it is rounded.
  const std::size_t most_bytes = std::max(packet.payload.size(), lease_.is_tree ? header.count * wire::kSumBytes : 0);
  return most_bytes <= lease_.payload_bytes && wire::payload_length_is_right(packet, lease_.bfp);
}

// kSwitchWorker if it is not below this switch.
std::uint16_t Aggregator::place_of_owner(const Header& header) const {
  if (tree_.contributors.empty()) return header.owner < lease_.world ? header.owner : wire::kSwitchWorker;
  return tree_.place_of(header.owner).value_or(wire::kSwitchWorker);
}

Receivers Aggregator::receivers_of(const Header& header) const {
  if (header.kind == Kind::kContribution) return {};
  const bool is_copy = header.kind == Kind::kCopy;
  if (is_copy && header.count == 0) return {Receivers::Who::kNone};
  return {is_copy ? Receivers::Who::kOthers : Receivers::Who::kOwner, place_of_owner(header)};
}

std::size_t Aggregator::result_payload_bytes(const Header& header) const {
  if (header.kind == Kind::kCopy) return header.count;
  return numbers::encoded_bytes(lease_.wire_format(header.format), header.count);
}

// Of what complete() writes.
std::size_t Aggregator::folded_payload_bytes(const Header& header) const {
  const bool goes_up_as_sum = tree_.above && header.kind != Kind::kCopy;
  return goes_up_as_sum ? header.count * wire::kSumBytes : result_payload_bytes(header);
}

bool Aggregator::has_arrived(std::uint32_t index, std::uint16_t worker) const {
  return (arrivals_[index * arrival_words_ + worker / 64] >> (worker % 64) & 1) != 0;
}

std::uint16_t Aggregator::lowest_missing(std::uint32_t index) const {
  for (std::uint32_t word = 0; word < arrival_words_; ++word) {
    const std::uint64_t arrived = arrivals_[index * arrival_words_ + word];
    if (~arrived != 0) return static_cast<std::uint16_t>(word * 64 + std::countr_one(arrived));
  }
  return wire::kSwitchWorker;
}

}  // namespace netfold::switching
