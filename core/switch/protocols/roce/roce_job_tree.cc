// RoceJob: a leaf of a tree of switches. Its sum goes up to the switch above, and the whole sum comes down.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "switch/ethernet/protocol_handler.h"
#include "switch/protocols/roce/roce_job.h"
#include "wire/bytes.h"
#include "wire/roce_network.h"

namespace netfold::switching {
namespace {

namespace roce = wire::roce;
using roce::AggregationHeader;

constexpr std::size_t kFromAt = 6;  // in a frame: its sender's address

}  // namespace

// All leaves have as many workers as this one, and ranks that follow each other. So one rank tells which leaf this is.
// Of a switch that is not a leaf: whether the job has this rank.
bool RoceJob::is_here(std::uint16_t rank, std::uint8_t workers) {
  if (workers != 0 && rank >= workers) return false;
  const auto leaf = static_cast<std::uint16_t>(rank / ranks_here());
  if (leaf_ == kNoOne) leaf_ = leaf;
  return leaf_ == leaf;
}

// --- Up ---

// All workers of this leaf have contributed. The frame of the last rank carries their sum up; the others wait here.
void RoceJob::complete_part(const AggregationHeader& header, std::uint32_t index, numbers::Folder& folder,
                            Outbox& outbox) {
  Place& place = places_[index];
  add_up(header, index, part_at(index), folder);
  place.has_part = true;
  place.part_of = header.message;
  send_up(held_at(index, port_of_rank_.back()), header, index, outbox);
  --held_;
}

// As the frame of one worker of the switch above: the leaf's number is its rank.
void RoceJob::send_up(const Held& held, const AggregationHeader& header, std::uint32_t index, Outbox& outbox) {
  assert(outbox.pool().is_sole(held.frame.buffer));
  link::Frame frame = held.frame;
  const std::span<std::byte> packet{frame.bytes + held.content_at, held.packet_bytes};
  const std::uint32_t packet_index = index % PsnWindow::kColumnPackets;
  if (packet_index == 0) {
    AggregationHeader of_leaf = header;
    of_leaf.rank = leaf_;
    of_leaf.workers = static_cast<std::uint8_t>(header.workers / ranks_here());
    std::ranges::copy(roce::emit(of_leaf), frame.bytes + held.elements_at - roce::kAggregationBytes);
  }
  std::memcpy(frame.bytes + held.elements_at, part_at(index), header.payload_bytes(packet_index));
  wire::put_big<std::uint64_t, 6>(frame.span(), kFromAt,
                                  roce::leaf_address(wire::get_big<std::uint64_t, 6>(frame.span(), kFromAt), leaf_));
  const roce::Version version = roce::version_of(packet);
  roce::set_transport_bytes(packet, version, packet.size() - roce::network_bytes(version));
  roce::seal(packet);
  frame.size_bytes = static_cast<std::uint32_t>(held.content_at + packet.size());
  frame.port = link::kNoPort;
  outbox.send(config_.uplink, {frame, {}});
}

// It is for the leaf's last rank, and its ranks are leaves. All workers of a leaf that disagrees disagree, so it may
// name the first of them. Which rank a leaf waits for only that leaf knows, and it tells its own workers.
void RoceJob::pass_on(roce::Notice notice, Outbox& outbox) const {
  const link::PortNumber port = port_of_rank_.back();
  if (port == kNoOne || notice.kind == roce::Notice::Kind::kWaiting) return;
  if (notice.kind != roce::Notice::Kind::kUnknown) notice.rank = static_cast<std::uint16_t>(notice.rank * ranks_here());
  send_notice(notice, port, connections_[port].from, outbox);
}

// --- Down ---

// It is for the leaf's first rank: the last rank of the leaf before this one has sent it.
RoceVerdict RoceJob::on_first_from_above(const RoceFrame& frame, const AggregationHeader& header, Outbox& outbox) {
  if ((header.flags & roce::kSummed) == 0 || !roce::is_marked_as_sum(frame.packet.header)) {
    return RoceVerdict::kNotSummed;
  }
  if (!is_from_the_left(header)) return RoceVerdict::kSpoofed;
  // The first rank may need a sum again when others here have begun the message four later.
  const std::uint32_t at = header.message % PsnWindow::kColumns;
  const bool is_next = header.message == above_.next_message;
  const AggregationHeader ours = is_next ? columns_[at].header : above_.headers[at];
  if (ours.message != header.message || !columns_[at].is_used) return RoceVerdict::kMessageOrder;
  AggregationHeader expected = ours;
  expected.flags |= roce::kSummed;
  expected.rank = header.rank;
  expected.workers = static_cast<std::uint8_t>(expected.workers / ranks_here());
  if (!(header == expected) || frame.packet.header.length_bytes != roce::kAggregationBytes + header.length_bytes) {
    return RoceVerdict::kMismatch;
  }
  if (const RoceVerdict verdict = bind_addresses(above_, frame); is_drop(verdict)) return verdict;
  above_.rank = header.rank;
  if (const RoceVerdict verdict = go_on(above_, frame, ours); is_drop(verdict)) return verdict;
  // Its worker is to see whose message it is, and how many workers the job has.
  expected.rank = static_cast<std::uint16_t>((header.rank + 1) * ranks_here() - 1);
  expected.workers = ours.workers;
  const std::span<std::byte> content = frame.frame.content();
  std::ranges::copy(roce::emit(expected), content.begin() + static_cast<std::ptrdiff_t>(frame.packet.payload_at));
  roce::seal(content.first(frame.packet.packet.size()));
  return take_whole_sum(frame, at * PsnWindow::kColumnPackets, outbox);
}

// A switch above that does not know an address yet sends a frame to all leaves. So it must be of the leaf before this
// one; the last leaf is before the first. RoCE v1 does not say how many there are: then it is the highest so far.
bool RoceJob::is_from_the_left(const AggregationHeader& header) const {
  if (leaf_ > 0) return header.rank + 1 == leaf_;
  return header.workers > 0 ? header.rank + 1 == header.workers : header.rank > 0 && header.rank >= above_.rank;
}

RoceVerdict RoceJob::take_whole_sum(const RoceFrame& frame, std::uint32_t index, Outbox& outbox) {
  const std::uint32_t packet = index % PsnWindow::kColumnPackets;
  const AggregationHeader& header = above_.headers[index / PsnWindow::kColumnPackets];
  const std::size_t before = packet == 0 ? roce::kAggregationBytes : 0, payload_bytes = header.payload_bytes(packet);
  if (!is_packet_of(header, packet, before + payload_bytes, frame)) return RoceVerdict::kBadShape;
  Place& place = places_[index];
  const bool is_new = !place.has_sum || place.sum_of != header.message;
  const bool is_gone = columns_[index / PsnWindow::kColumnPackets].header.message != header.message;
  if (is_new && is_gone) return RoceVerdict::kStale;
  if (is_new) {
    std::memcpy(sum_at(index), frame.packet.payload.data() + before, payload_bytes);
    keep_sum(header, index);
    if (place.arrived != 0 && place.message == header.message) send_to_all(header, index, outbox);
  }
  send_in_tree(frame.frame.to, frame.frame.frame, first_rank(), outbox);
  return is_new ? RoceVerdict::kFolded : RoceVerdict::kAnswered;
}

// Where its receiver, or the switch above that, has not been heard of yet, it is at the port of its rank. A switch in
// the middle hears of most workers only by their acknowledgements.
void RoceJob::send_in_tree(MacAddress to, link::Frame frame, std::uint32_t rank, Outbox& outbox) const {
  frame.port = link::kNoPort;
  const link::PortNumber known = outbox.port_of(to);
  const std::uint32_t here = rank - first_rank();
  outbox.send(known != link::kNoPort ? known : here < ranks_here() ? port_of_rank_[here] : config_.uplink, {frame, {}});
}

}  // namespace netfold::switching
