#include "switch/protocols/netfold/netfold_handler.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace netfold::switching {
namespace {

// A result's elements begin on a cache line of their own.
constexpr std::size_t kResultAt = 64 - wire::kHeaderBytes;
constexpr std::size_t kUdpHeaderBytes = 8;

void release_all(std::span<link::Frame> held, link::BufferPool& pool) {
  for (link::Frame& frame : held) {
    if (frame.buffer != nullptr) pool.release({&frame.buffer, 1});
    frame.buffer = nullptr;
  }
}

// Only the frame's headers, as long as they stay in its buffer.
link::Frame head_of(const ParsedFrame& frame) {
  link::Frame head = frame.frame;
  head.size_bytes = frame.payload_at;
  return head;
}

void keep_head(const ParsedFrame& frame, std::optional<FrameHead>& kept) {
  if (!kept) kept.emplace();
  kept->frame = frame;
  std::memcpy(kept->bytes.data(), frame.frame.bytes, frame.payload_at);
}

// Of a head that has become an answer: the lengths of what follows it.
void resize_answer(const link::Frame& head, std::size_t payload_bytes) {
  constexpr std::size_t kTypeAt = 2 * MacAddress::kBytes, kTag = 0x8100, kServiceTag = 0x88a8;
  std::size_t type_at = kTypeAt;
  for (auto type = read_u16(head.bytes + type_at); type == kTag || type == kServiceTag;
       type = read_u16(head.bytes + type_at)) {
    type_at += 4;
  }
  ParsedFrame frame;
  frame.frame = head;
  frame.content_at = static_cast<std::uint16_t>(type_at + 2);
  frame.ip.header_bytes = static_cast<std::uint8_t>(head.size_bytes - kUdpHeaderBytes - frame.content_at);
  set_lengths(frame, payload_bytes);
}

}  // namespace

// The answers of one job's aggregator while it handles one frame.
class NetfoldHandler::JobOutbox final : public AggregatorOutput {
 public:
  // `sender`: its place, or kSwitchWorker.
  JobOutbox(NetfoldHandler& handler, FrameJob& job, const ParsedFrame& frame, std::uint16_t sender, Outbox& outbox)
      : handler_(handler), job_(job), frame_(frame), sender_(sender), outbox_(outbox) {}

  void result_to_all(std::uint32_t place, std::span<const std::byte> packet) override {
    const std::size_t world = job_.admission.lease.world;
    link::Frame& body = job_.results[place];
    body.size_bytes = static_cast<std::uint32_t>(packet.size());
    outbox_.pool().retain(body.buffer, static_cast<std::uint32_t>(world));
    link::Frame* const heads = &job_.heads[place * world];
    const bool has_sums = job_.admission.tree.has_switches();  // longer than the result
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (has_sums) resize_answer(heads[rank], packet.size());
      outbox_.send(heads[rank].port, {heads[rank], body});
      heads[rank].buffer = nullptr;
    }
    job_.counters.results_sent.add(world);
    job_.counters.sent_bytes.add(world * packet.size());
  }

  // The others' answers lie in the buffers of their contributions, which are folded.
  void result_to_some(std::uint32_t place, std::span<const std::byte> packet, std::span<const std::byte> done,
                      Receivers receivers) override {
    const std::size_t world = job_.admission.lease.world;
    link::Frame& body = job_.results[place];
    body.size_bytes = static_cast<std::uint32_t>(packet.size());
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      link::Frame head = std::exchange(job_.heads[place * world + rank], {});
      const bool receives = receivers.have(rank);
      const auto answer = receives ? packet : done;
      resize_answer(head, answer.size());
      if (receives) {
        outbox_.pool().retain(body.buffer, 1);
        outbox_.send(head.port, {head, body});
      } else {
        std::memcpy(head.bytes + head.size_bytes, done.data(), done.size());
        head.size_bytes += static_cast<std::uint32_t>(done.size());
        outbox_.send(head.port, {head, {}});
      }
      job_.counters.sent_bytes.add(answer.size());
    }
    job_.counters.results_sent.add(world);
  }

  // To the sender of this frame, in its own buffer: only a probe is answered so.
  void result_to_one(std::uint16_t worker, std::uint32_t place, std::span<const std::byte> packet) override {
    job_.count_resent(worker);
    job_.counters.sent_bytes.add(packet.size());
    outbox_.pool().retain(job_.results[place].buffer, 1);
    turn_into_answer(frame_, packet.size());
    outbox_.send(frame_.frame.port, {head_of(frame_), job_.results[place]});
    is_used_ = true;
  }

  // To the sender of this frame, which may be a contribution that stays, or to another place: in a buffer of its own.
  void notice(std::uint16_t worker, std::span<const std::byte> packet) override {
    const bool is_answer = worker == sender_;
    const bool is_known = worker < job_.latest.size() && job_.latest[worker];
    if (!is_answer && !is_known) return;  // nothing has come from there yet
    ParsedFrame answer = is_answer ? frame_ : job_.latest[worker]->frame;
    const std::byte* const head = is_answer ? frame_.frame.bytes : job_.latest[worker]->bytes.data();
    link::Frame copy = outbox_.pool().allocate();
    if (copy.buffer == nullptr) return;  // probes ask again
    const std::size_t head_bytes = answer.payload_at;
    std::memcpy(copy.bytes, head, head_bytes);
    answer.frame.bytes = copy.bytes;
    if (is_answer && is_turned_) {
      set_lengths(answer, packet.size());
    } else {
      turn_into_answer(answer, packet.size());
    }
    if (!is_answer) {  // its threads have a port each
      const link::Address to = job_.admission.address_of(worker, wire::chunk_in(packet));
      write_u16(copy.bytes + answer.content_at + answer.ip.header_bytes + 2, to.port);
    }
    std::memcpy(copy.bytes + head_bytes, packet.data(), packet.size());
    copy.size_bytes = static_cast<std::uint32_t>(head_bytes + packet.size());
    outbox_.send(answer.frame.port, {copy, {}});
    if (wire::is_kind(packet, wire::Kind::kMissing)) job_.count_missing(worker);
  }

  void sum_to_above(std::span<const std::byte> packet, bool is_again) override {
    const std::uint32_t place = job_.aggregator.place_of(wire::chunk_in(packet));
    link::Frame& body = job_.results[place];
    const link::Frame head = head_to_above(packet);
    if (head.buffer == nullptr) return;  // probes ask for it again
    body.size_bytes = static_cast<std::uint32_t>(packet.size());
    outbox_.pool().retain(body.buffer, 1);
    outbox_.send(head.port, {head, body});
    (is_again ? job_.counters.up_resent : job_.counters.up_sums).add(1);
  }

  void notice_to_above(std::span<const std::byte> packet) override {
    link::Frame whole = head_to_above(packet);
    if (whole.buffer == nullptr) return;
    std::memcpy(whole.bytes + whole.size_bytes, packet.data(), packet.size());
    whole.size_bytes += static_cast<std::uint32_t>(packet.size());
    outbox_.send(whole.port, {whole, {}});
  }

  // Either this frame is the question, and its own answer, or an earlier one is kept to be it.
  void complete(std::span<const std::byte> packet) override {
    link::Frame signal = job_.signal;
    std::uint16_t payload_at = job_.signal_payload_at;
    if (signal.buffer != nullptr) {
      job_.signal.buffer = nullptr;
    } else {
      turn_into_answer(frame_, packet.size());
      signal = frame_.frame;
      payload_at = frame_.payload_at;
      is_used_ = true;
    }
    std::memcpy(signal.bytes + payload_at, packet.data(), packet.size());
    signal.size_bytes = static_cast<std::uint32_t>(payload_at + packet.size());
    outbox_.send(signal.port, {signal, {}});
    job_.counters.signals.add(1);
    job_.counters.sent_bytes.add(packet.size());
  }

  void mismatch(std::uint16_t rank, std::string what) override {
    job_.has_failed = true;
    handler_.on_mismatch_(job_.admission.lease.job, job_.admission.lease.epoch, rank, std::move(what));
  }

  std::byte* room_for_result(std::uint32_t place, std::size_t size_bytes) override {
    link::Frame fresh = outbox_.pool().allocate();
    if (fresh.buffer == nullptr) return nullptr;
    const bool fits = fresh.size_bytes >= kResultAt + size_bytes;
    link::Frame& room = job_.results[place];
    if (fits) std::swap(room, fresh);
    if (fresh.buffer != nullptr) outbox_.pool().release({&fresh.buffer, 1});
    if (!fits) return nullptr;
    room.bytes += kResultAt;
    return room.bytes;
  }

  // The contribution becomes the head of the answer to its sender while its headers are at hand.
  void turn() {
    turn_into_answer(frame_, frame_.payload_bytes);
    is_turned_ = true;
  }
  bool is_used() const { return is_used_; }
  // The host's question becomes the signal to be.
  void keep_question() {
    turn_into_answer(frame_, frame_.payload_bytes);
    job_.signal = frame_.frame;
    job_.signal_payload_at = frame_.payload_at;
  }

 private:
  // The headers of a frame for the switch above. Without a buffer: none is free, or the way there is not known.
  link::Frame head_to_above(std::span<const std::byte> packet) {
    const link::Address to = job_.admission.tree.above->address_of(wire::chunk_in(packet));
    const auto way = handler_.options_.way_up->addresses();
    const link::PortNumber port = way ? outbox_.port_of(way->to) : link::kNoPort;
    if (port == link::kNoPort) return {};
    link::Frame head = outbox_.pool().allocate();
    if (head.buffer == nullptr) return {};
    const std::uint16_t from = handler_.options_.ports[handler_.options_.thread];
    write_udp_headers({way->to, way->from, to.ip.v4(), way->ip_from, to.port, from, packet.size()}, head.bytes);
    head.size_bytes = kUdpFrameBytes;
    head.port = port;
    job_.counters.up_sent_bytes.add(packet.size());
    return head;
  }

  NetfoldHandler& handler_;
  FrameJob& job_;
  const ParsedFrame& frame_;
  const std::uint16_t sender_;
  Outbox& outbox_;
  bool is_turned_ = false, is_used_ = false;
};

FrameJob::FrameJob(const Admission& admitted, std::uint16_t shard)
    : ShardJob(admitted, shard, Payloads::kLent),
      heads(aggregator.places() * admitted.lease.world),
      results(aggregator.places()),
      latest(admitted.tree.above || admitted.tree.has_switches() ? admitted.lease.world : 0) {}

NetfoldHandler::NetfoldHandler(Options options, DataPlane::OnMismatch on_mismatch)
    : options_(std::move(options)), on_mismatch_(std::move(on_mismatch)), filter_(options_.jobs_max) {}

std::uint16_t NetfoldHandler::thread_for(const ParsedFrame& frame) const {
  if (!frame.has_udp) return kNoFolding;
  for (std::size_t thread = 0; thread < options_.ports.size(); ++thread) {
    if (options_.ports[thread] != frame.udp.to) continue;
    return options_.addresses->contains(frame.ip.to) ? static_cast<std::uint16_t>(thread) : kNoFolding;
  }
  return kNoFolding;
}

HandlerVerdict NetfoldHandler::offer(const ParsedFrame& frame, Outbox& outbox) {
  if (frame.has_ip && options_.addresses->is_own(frame.ip.from)) options_.way_up->look_at(frame);
  if (options_.thread == kNoFolding || thread_for(frame) != options_.thread) return HandlerVerdict::kNotMine;
  // A host's port need not be one that folds.
  if (!outbox.settings().folds(frame.frame.port) && !wire::is_kind(frame.payload(), wire::Kind::kAwait)) {
    return HandlerVerdict::kNotMine;
  }
  if (frame.frame.is_shared) return offer_copy(frame, outbox);
  wire::Packet packet;
  const auto [admitted, is_from_above] = filter_.admit(frame.payload(), {frame.ip.from, frame.udp.from}, packet);
  auto* const job = static_cast<FrameJob*>(admitted);
  if (job == nullptr) return HandlerVerdict::kDropped;
  if (is_from_above) return take_from_above(*job, frame, packet, outbox);

  const wire::Header& header = packet.header;
  if (header.worker < job->latest.size()) keep_head(frame, job->latest[header.worker]);
  JobOutbox out(*this, *job, frame, header.worker, outbox);
  link::Frame* head = nullptr;
  if (wire::is_contribution(header.kind)) {
    // Its place is free unless this is a duplicate; the aggregator knows, but wants the payload first.
    head =
        &job->heads[std::size_t{job->aggregator.place_of(header.chunk)} * job->admission.lease.world + header.worker];
    if (head->buffer == nullptr) {
      out.turn();
      *head = head_of(frame);
    } else {
      head = nullptr;
    }
  }
  if (header.kind == wire::Kind::kAwait) release_all({&job->signal, 1}, outbox.pool());  // only the last one counts
  const Verdict verdict = job->aggregator.on_packet(packet, outbox.time(), out);
  filter_.count(*job, verdict, header, frame.payload_bytes, outbox.time());
  if (verdict == Verdict::kAwaited) return out.keep_question(), HandlerVerdict::kTaken;
  if (verdict == Verdict::kKept || verdict == Verdict::kFolded || out.is_used()) return HandlerVerdict::kTaken;
  if (head != nullptr) head->buffer = nullptr;
  return HandlerVerdict::kDropped;
}

HandlerVerdict NetfoldHandler::take_from_above(FrameJob& job, const ParsedFrame& frame, const wire::Packet& packet,
                                               Outbox& outbox) {
  JobOutbox out(*this, job, frame, wire::kSwitchWorker, outbox);
  const Verdict verdict = job.aggregator.on_packet_from_above(packet, out);
  filter_.count(job, verdict, packet.header, frame.payload_bytes, outbox.time(), true);
  if (verdict != Verdict::kFromAbove && verdict != Verdict::kAnswered) return HandlerVerdict::kDropped;
  outbox.pool().release({&frame.frame.buffer, 1});
  return HandlerVerdict::kTaken;
}

// A copy of a frame that others read as well, and that can therefore not become an answer.
HandlerVerdict NetfoldHandler::offer_copy(const ParsedFrame& frame, Outbox& outbox) {
  ParsedFrame copy = frame;
  copy.frame = outbox.pool().allocate();
  const std::size_t size_bytes = frame.frame.size_bytes;
  HandlerVerdict answer = HandlerVerdict::kDropped;
  if (copy.frame.buffer == nullptr) return answer;
  if (size_bytes <= copy.frame.size_bytes) {
    std::memcpy(copy.frame.bytes, frame.frame.bytes, size_bytes);
    copy.frame.size_bytes = frame.frame.size_bytes;
    copy.frame.port = frame.frame.port;
    answer = offer(copy, outbox);
  }
  outbox.pool().release({answer == HandlerVerdict::kTaken ? &frame.frame.buffer : &copy.frame.buffer, 1});
  return answer;
}

void NetfoldHandler::place(std::uint16_t id, FrameJob* job, link::BufferPool& pool) {
  if (auto* const before = static_cast<FrameJob*>(filter_.job(id)); before != nullptr) {
    release_all(before->heads, pool);
    release_all(before->results, pool);
    release_all({&before->signal, 1}, pool);
    std::erase(placed_, id);
  }
  filter_.place(id, job);
  if (job != nullptr) placed_.push_back(id);
}

void NetfoldHandler::drain(Outbox& outbox) {
  while (!placed_.empty()) place(placed_.back(), nullptr, outbox.pool());
}

std::vector<std::pair<std::string, std::uint64_t>> NetfoldHandler::counts() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (std::size_t reason = 0; reason < static_cast<std::size_t>(DropReason::kCount); ++reason) {
    const auto it = static_cast<DropReason>(reason);
    all.emplace_back(std::string("drop_") + name_of(it), drops(it));
  }
  return all;
}

}  // namespace netfold::switching
