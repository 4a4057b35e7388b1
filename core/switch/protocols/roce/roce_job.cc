#include "switch/protocols/roce/roce_job.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/names.h"
#include "switch/ethernet/protocol_handler.h"
#include "wire/crc32.h"
#include "wire/roce_network.h"

namespace netfold::switching {
namespace {

namespace roce = wire::roce;
using roce::AggregationHeader;
using roce::Notice;
using roce::Opcode;

bool say_the_same(AggregationHeader a, const AggregationHeader& b) {
  a.rank = b.rank;
  return a == b;
}

}  // namespace

const char* name_of(RoceVerdict verdict) {
  constexpr const char* kNames[]{"forwarded", "kept",  "folded", "answered", "waiting", "malformed", "icrc",
                                 "header",    "epoch", "rank",   "spoofed",  "order",   "mismatch",  "psn",
                                 "shape",     "block", "busy",   "stale",    "jobs",    "room",      "not_summed"};
  return name_in(kNames, verdict);
}

RoceJob::RoceJob(std::uint16_t job, std::uint16_t epoch, AggregationConfig config, Nanoseconds now)
    : job_(job),
      epoch_(epoch),
      config_(config),
      ports_(static_cast<std::uint32_t>(std::bit_width(config.ports))),
      connections_(ports_),
      port_of_rank_(static_cast<std::size_t>(config.workers()), kNoOne),
      leaf_(config.is_leaf() ? kNoOne : 0),
      places_(roce::kWindowPackets),
      frames_(std::size_t{roce::kWindowPackets} * ports_),
      sums_(std::size_t{roce::kWindowPackets} * roce::kPathMtu),
      parts_(config.is_leaf() ? sums_.size() : 0),
      fold_inputs_(port_of_rank_.size()),
      last_sign_(now) {}

bool RoceJob::has_connection(link::PortNumber port, std::uint64_t to, std::uint32_t queue_pair) const {
  if (port >= ports_ && !is_uplink(port)) return false;
  const Connection& connection = connection_at(port);
  return connection.is_bound && connection.queue_pair == queue_pair && connection.to == to;
}

RoceVerdict RoceJob::on_first(const RoceFrame& frame, const AggregationHeader& header, numbers::Folder& folder,
                              Outbox& outbox) {
  last_sign_ = outbox.time();
  if (is_uplink(frame.frame.frame.port)) return on_first_from_above(frame, header, outbox);
  Connection& connection = connections_[frame.frame.frame.port];
  if (const RoceVerdict verdict = check(frame, header, outbox); is_drop(verdict)) return verdict;
  if (const RoceVerdict verdict = bind(connection, frame, header); is_drop(verdict)) return verdict;
  connection.heard = outbox.time();

  const std::uint32_t column = header.message % PsnWindow::kColumns;
  if (header.message == connection.next_message) {
    if (const RoceVerdict verdict = agree(connection, frame, header, outbox); is_drop(verdict)) return verdict;
  }
  if (const RoceVerdict verdict = go_on(connection, frame, header); is_drop(verdict)) return verdict;
  return contribute(frame, connection, column * PsnWindow::kColumnPackets, folder, outbox);
}

// A message of a connection begins, or its first packet has come again.
RoceVerdict RoceJob::go_on(Connection& connection, const RoceFrame& frame, const AggregationHeader& header) {
  const std::uint32_t psn = frame.packet.header.psn;
  const std::uint32_t column = header.message % PsnWindow::kColumns;
  if (header.message == connection.next_message) {
    [[maybe_unused]] const std::uint32_t place = connection.window.open(psn, header.packets());
    assert(place == column * PsnWindow::kColumnPackets);
    connection.headers[column] = header;
    ++connection.next_message;
    return RoceVerdict::kKept;
  }
  const std::int32_t back = distance(connection.next_message, header.message);
  if (back < 1 || back > static_cast<std::int32_t>(std::min(connection.next_message, PsnWindow::kColumns))) {
    return back < 1 ? RoceVerdict::kMessageOrder : RoceVerdict::kStale;
  }
  if (!(connection.headers[column] == header)) return RoceVerdict::kMismatch;
  if (connection.window.base(column) != psn) {
    // The message goes on under new sequence numbers: its worker has begun its connection anew.
    if (connection.window.base(column) != PsnWindow::kNoBase) {
      connection.window.forget_bases();
      ++restarts_;
    }
    connection.window.reopen(column, psn, header.packets());
  }
  return RoceVerdict::kKept;
}

RoceVerdict RoceJob::check(const RoceFrame& frame, const AggregationHeader& header, Outbox& outbox) const {
  const std::size_t first_bytes =
      header.is_full_from(header.rank) ? roce::kPathMtu : roce::kAggregationBytes + roce::kShortBytes;
  if (frame.packet.payload.size() != first_bytes ||
      frame.packet.header.length_bytes != roce::kAggregationBytes + header.length_bytes ||
      (header.flags & roce::kSummed) != 0) {
    return RoceVerdict::kBadHeader;
  }
  const bool has_all = config_.is_leaf() ? header.workers % ranks_here() == 0 : header.workers == ranks_here();
  if (header.workers != 0 && !has_all) {  // a sum of others than its workers would be wrong
    notify(frame, Notice::Kind::kWorkers, static_cast<std::uint16_t>(config_.workers()), 0, header.message, outbox);
    return RoceVerdict::kBadRank;
  }
  if (config_.is_leaf() && header.way != roce::Way::kToAll) return RoceVerdict::kBadHeader;
  return header.other < config_.workers() ? RoceVerdict::kKept : RoceVerdict::kBadHeader;
}

// Table VI's "record QP as the aggregation QP".
RoceVerdict RoceJob::bind(Connection& connection, const RoceFrame& frame, const AggregationHeader& header) {
  const link::PortNumber port = frame.frame.frame.port;
  if (!is_here(header.rank, header.workers)) return RoceVerdict::kBadRank;
  std::uint16_t& port_of_rank = port_of_rank_[header.rank - first_rank()];
  if (port_of_rank != kNoOne && port_of_rank != port) return RoceVerdict::kBadRank;
  if (connection.is_bound && connection.rank != header.rank) return RoceVerdict::kBadRank;
  const RoceVerdict verdict = bind_addresses(connection, frame);
  if (is_drop(verdict)) return verdict;
  port_of_rank = port;
  connection.rank = header.rank;
  return RoceVerdict::kKept;
}

RoceVerdict RoceJob::bind_addresses(Connection& connection, const RoceFrame& frame) {
  const roce::Header& transport = frame.packet.header;
  if (connection.is_bound && connection.queue_pair == transport.queue_pair && connection.to == frame.frame.to.number) {
    const bool is_same = connection.from == frame.frame.from.number && connection.gid_to == transport.to &&
                         connection.gid_from == transport.from;
    return is_same ? RoceVerdict::kKept : RoceVerdict::kSpoofed;
  }
  if (connection.is_bound) {
    connection.window.forget_bases();
    ++restarts_;
  }
  connection.is_bound = true;
  connection.to = frame.frame.to.number;
  connection.from = frame.frame.from.number;
  connection.gid_to = transport.to;
  connection.gid_from = transport.from;
  connection.queue_pair = transport.queue_pair;
  return RoceVerdict::kKept;
}

// A worker opens a message only when the one four before has reached all workers; so its column is free, or holds the
// same message of the others.
RoceVerdict RoceJob::agree(Connection&, const RoceFrame& frame, const AggregationHeader& header, Outbox& outbox) {
  Column& column = columns_[header.message % PsnWindow::kColumns];
  if (column.is_used && column.header.message == header.message) {
    if (say_the_same(column.header, header)) return RoceVerdict::kKept;
    notify(frame, Notice::Kind::kMismatch, column.header.rank, 0, header.message, outbox);
    return RoceVerdict::kMismatch;
  }
  if (column.is_used && distance(header.message, column.header.message) < 0) return RoceVerdict::kStale;
  if (column.is_used && column.folded_packets < column.header.packets()) return RoceVerdict::kBusy;
  column = {true, header, 0};
  return RoceVerdict::kKept;
}

RoceVerdict RoceJob::on_later(const RoceFrame& frame, numbers::Folder& folder, Outbox& outbox) {
  if (has_summed_) last_sign_ = outbox.time();
  Connection& connection = connection_at(frame.frame.frame.port);
  const bool is_from_above = is_uplink(frame.frame.frame.port);
  const roce::Header& transport = frame.packet.header;
  if (is_from_above && !roce::is_marked_as_sum(transport)) return RoceVerdict::kNotSummed;
  if (connection.from != frame.frame.from.number || connection.gid_to != transport.to ||
      connection.gid_from != transport.from) {
    return RoceVerdict::kSpoofed;
  }
  connection.heard = outbox.time();
  const auto place = connection.window.place_of(transport.psn);
  if (!place) {
    if (is_ahead(connection, transport.psn)) {
      notify(frame, Notice::Kind::kUnknown, connection.rank, 0, transport.psn, outbox);
    }
    return RoceVerdict::kPsn;
  }
  if (is_from_above) return take_whole_sum(frame, *place, outbox);
  return contribute(frame, connection, *place, folder, outbox);
}

// Whether a frame has the length and the opcode of this packet of a message: immediate data at the end is the sender's
// choice.
bool RoceJob::is_packet_of(const AggregationHeader& header, std::uint32_t packet, std::size_t payload_bytes,
                           const RoceFrame& frame) {
  const Opcode opcode = frame.packet.header.opcode;
  if (frame.packet.payload.size() != payload_bytes) return false;
  if (packet == 0) return opcode == Opcode::kWriteFirst;
  if (packet + 1 < header.packets()) return opcode == Opcode::kWriteMiddle;
  return opcode == Opcode::kWriteLast || opcode == Opcode::kWriteLastImmediate;
}

// Behind the newest message, by less than a window: its own message's first packet was lost, not overtaken by four.
bool RoceJob::is_ahead(const Connection& connection, std::uint32_t psn) {
  const std::uint32_t newest = (connection.next_message + PsnWindow::kColumns - 1) % PsnWindow::kColumns;
  const std::uint32_t base = connection.window.base(newest);
  if (base == PsnWindow::kNoBase) return true;
  return ((psn - base) & roce::kPsnMask) < roce::kWindowPackets;
}

RoceVerdict RoceJob::contribute(const RoceFrame& frame, Connection& connection, std::uint32_t index,
                                numbers::Folder& folder, Outbox& outbox) {
  const AggregationHeader& header = connection.headers[index / PsnWindow::kColumnPackets];
  const std::uint32_t packet = index % PsnWindow::kColumnPackets;
  const std::size_t payload_bytes = header.payload_bytes(packet);
  const std::size_t before = packet == 0 ? roce::kAggregationBytes : 0;
  const bool is_full = header.is_full_from(connection.rank);
  if (!is_packet_of(header, packet, before + (is_full ? payload_bytes : roce::kShortBytes), frame)) {
    return RoceVerdict::kBadShape;
  }
  Place& place = places_[index];
  const std::uint32_t port_bit = 1u << frame.frame.frame.port;
  const bool goes_up = is_last(frame.frame.frame.port);
  if (goes_up && place.has_part && place.part_of == header.message) {
    send_up(hold(frame, packet), header, index, outbox);
    return RoceVerdict::kAnswered;
  }
  if (!goes_up && place.has_sum && place.sum_of == header.message) {
    send_sum(hold(frame, packet), header, index, outbox);
    return RoceVerdict::kAnswered;
  }
  if (place.has_sum && distance(header.message, place.sum_of) < 0) return RoceVerdict::kStale;
  if (place.arrived != 0 && place.message != header.message) {
    return distance(header.message, place.message) < 0 ? RoceVerdict::kStale : RoceVerdict::kBusy;
  }
  if ((place.arrived & port_bit) != 0) {
    if (place.waits_above()) return RoceVerdict::kWaiting;  // the switches beside this one know for whom
    notify(frame, Notice::Kind::kWaiting, longest_silent(place), packet, header.message, outbox);
    return RoceVerdict::kWaiting;
  }
  const numbers::WireFormat format = format_of(header);
  const std::size_t count = numbers::elements_that_fit(format, payload_bytes);
  if (format.format == numbers::Format::kBfp && is_full &&
      !numbers::kernels().bfp_is_well_formed(format.bfp, frame.packet.payload.data() + before, count)) {
    return RoceVerdict::kMalformedBlock;
  }
  if (place.arrived == 0) place.first_at = outbox.time();
  place.message = header.message;
  place.arrived |= port_bit;
  held_at(index, frame.frame.frame.port) = hold(frame, packet);
  ++held_;
  if (place.arrived != config_.ports) return RoceVerdict::kKept;
  complete(header, index, folder, outbox);
  return RoceVerdict::kFolded;
}

void RoceJob::complete(const AggregationHeader& header, std::uint32_t index, numbers::Folder& folder, Outbox& outbox) {
  if (config_.is_leaf()) return complete_part(header, index, folder, outbox);
  add_up(header, index, sum_at(index), folder);
  keep_sum(header, index);
  send_to_all(header, index, outbox);
}

// The sum is at its place.
void RoceJob::keep_sum(const AggregationHeader& header, std::uint32_t index) {
  Place& place = places_[index];
  place.has_sum = has_summed_ = true;
  place.sum_of = header.message;
  place.sum_check = wire::crc32({sum_at(index), header.payload_bytes(index % PsnWindow::kColumnPackets)});
  ++columns_[index / PsnWindow::kColumnPackets].folded_packets;
}

void RoceJob::send_to_all(const AggregationHeader& header, std::uint32_t index, Outbox& outbox) {
  for (std::uint32_t ports = held_ports(index); ports != 0; ports &= ports - 1) {
    send_sum(held_at(index, static_cast<link::PortNumber>(std::countr_zero(ports))), header, index, outbox);
    --held_;
  }
  places_[index].arrived = 0;
}

// A place keeps the sum, or a copy of the giver's bytes, which are added to nothing.
void RoceJob::add_up(const AggregationHeader& header, std::uint32_t index, std::byte* sum, numbers::Folder& folder) {
  const std::size_t payload_bytes = header.payload_bytes(index % PsnWindow::kColumnPackets);
  const auto elements_of = [&](std::size_t rank) {
    const Held& held = held_at(index, port_of_rank_[rank]);
    return held.frame.bytes + held.elements_at;
  };
  if (header.way == roce::Way::kFromGiver) {
    std::memcpy(sum, elements_of(header.other), payload_bytes);
    return;
  }
  for (std::size_t rank = 0; rank < port_of_rank_.size(); ++rank) fold_inputs_[rank] = elements_of(rank);
  const numbers::WireFormat format = format_of(header);
  const std::size_t count = numbers::elements_that_fit(format, payload_bytes);
  const std::size_t folded_bytes = numbers::encoded_bytes(format, count);
  folder.fold(format, fold_inputs_, count, sum);
  std::memset(sum + folded_bytes, 0, payload_bytes - folded_bytes);
}

RoceJob::Held RoceJob::hold(const RoceFrame& frame, std::uint32_t packet) const {
  const std::size_t elements_at =
      frame.frame.content_at + frame.packet.payload_at + (packet == 0 ? roce::kAggregationBytes : 0);
  return {frame.frame.frame, frame.frame.content_at, static_cast<std::uint16_t>(elements_at),
          static_cast<std::uint32_t>(frame.packet.packet.size()), frame.frame.to};
}

// The frame's own headers, the sum in place of its numbers, and the marks that say so. Of a one-way message the frame
// grows or shrinks to the packet that its receiver is due: a buffer has room for the longest frame.
void RoceJob::send_sum(const Held& held, const AggregationHeader& header, std::uint32_t index, Outbox& outbox) {
  assert(outbox.pool().is_sole(held.frame.buffer));
  link::Frame frame = held.frame;
  const bool is_full = header.is_full_to(right_of(frame.port));
  const std::size_t payload_bytes =
      is_full ? header.payload_bytes(index % PsnWindow::kColumnPackets) : roce::kShortBytes;
  const std::size_t packet_bytes = held.elements_at - held.content_at + payload_bytes + roce::kIcrcBytes;
  assert(held.content_at + packet_bytes <= outbox.pool().room_bytes());
  const std::span<std::byte> packet{frame.bytes + held.content_at, packet_bytes};
  const roce::Version version = roce::version_of(packet);
  if (packet_bytes != held.packet_bytes) {
    roce::set_transport_bytes(packet, version, packet_bytes - roce::network_bytes(version));
  }
  if (is_full) {
    std::memcpy(frame.bytes + held.elements_at, sum_at(index), payload_bytes);
  } else {
    std::memset(frame.bytes + held.elements_at, 0, payload_bytes);
  }
  roce::mark_as_sum(packet);
  const std::size_t middle_bytes = roce::packet_bytes(Opcode::kWriteMiddle, roce::kPathMtu, version);
  if (payload_bytes == roce::kPathMtu && packet_bytes == middle_bytes) {
    roce::seal_middle(packet, places_[index].sum_check);
  } else {
    roce::seal(packet);
  }
  frame.size_bytes = static_cast<std::uint32_t>(held.content_at + packet_bytes);
  if (config_.is_leaf()) return send_in_tree(held.to, frame, connections_[held.frame.port].rank + 1u, outbox);
  frame.port = link::kNoPort;
  outbox.forward(held.to, frame, held.frame.port);
}

void RoceJob::notify(const RoceFrame& frame, Notice::Kind kind, std::uint16_t rank, std::uint32_t packet,
                     std::uint32_t message, Outbox& outbox) const {
  const Notice notice{.kind = kind,
                      .job = job_,
                      .epoch = epoch_,
                      .rank = rank,
                      .packet = static_cast<std::uint16_t>(packet),
                      .message = message};
  send_notice(notice, frame.frame.frame.port, frame.frame.from.number, outbox);
}

void RoceJob::send_notice(const Notice& notice, link::PortNumber port, std::uint64_t to, Outbox& outbox) {
  link::Frame frame = outbox.pool().allocate();
  if (frame.buffer == nullptr) return;  // the worker will ask again
  const auto bytes = roce::emit_frame(notice, to);
  std::memcpy(frame.bytes, bytes.data(), bytes.size());
  frame.size_bytes = static_cast<std::uint32_t>(bytes.size());
  outbox.send(port, {frame, {}});
}

// The rank that is to blame for a place that is not full. It is not the lowest missing rank, which may itself wait for
// the acknowledgement of a dead one and repeat its packets. It is the rank that sends nothing at all.
std::uint16_t RoceJob::longest_silent(const Place& place) const {
  std::uint16_t silent = kNoOne;
  Nanoseconds since = kNever;
  for (std::size_t rank = 0; rank < port_of_rank_.size(); ++rank) {
    const std::uint16_t port = port_of_rank_[rank];
    if (port != kNoOne && (place.arrived >> port & 1) != 0) continue;
    const Nanoseconds heard = port == kNoOne ? 0 : connections_[port].heard;
    if (heard >= since) continue;
    since = heard;
    silent = static_cast<std::uint16_t>(first_rank() + rank);
  }
  return silent;
}

numbers::WireFormat RoceJob::format_of(const AggregationHeader& header) const {
  switch (header.format) {
    case numbers::Format::kNone: return {config_.is_float ? numbers::Format::kFp32 : numbers::Format::kInt32};
    case numbers::Format::kBfp: return {header.format, {header.block, header.mantissa}};
    default: return {header.format};
  }
}

std::size_t RoceJob::release_old(Nanoseconds since, Outbox& outbox) {
  if (held_ == 0) return 0;
  std::size_t released = 0;
  for (std::uint32_t index = 0; index < places_.size(); ++index) {
    Place& place = places_[index];
    if (place.arrived == 0 || place.first_at >= since) continue;
    for (std::uint32_t ports = held_ports(index); ports != 0; ports &= ports - 1) {
      const auto port = static_cast<link::PortNumber>(std::countr_zero(ports));
      outbox.pool().release({&held_at(index, port).frame.buffer, 1});
      ++released;
    }
    place.arrived = 0;
  }
  held_ -= released;
  return released;
}

}  // namespace netfold::switching
