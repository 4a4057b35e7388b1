// RoCE v1: one message a round, which workers write to each other in a ring.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "numbers/fold.h"
#include "switch_bench/rounds.h"
#include "wire/aggregation_header.h"
#include "wire/roce.h"

namespace netfold::apps {
namespace {

namespace roce = wire::roce;

constexpr std::uint32_t kFirstQueuePair = 0x100;
constexpr std::size_t kFrameBytes =
    roce::kEthernetBytes + roce::kGrhBytes + roce::kBthBytes + roce::kPathMtu + roce::kIcrcBytes;  // of the middle ones
constexpr std::size_t kFrameBytesMax = roce::kEthernetBytes + roce::kPacketBytesMax;

class RoceRounds final : public Rounds {
 public:
  explicit RoceRounds(const RoundShape& shape)
      : workers_(shape.workers),
        packets_(std::clamp(shape.window, 2u, roce::kMessagePackets)),
        format_(shape.format),
        message_bytes_(packets_ * roce::kPathMtu - roce::kAggregationBytes),
        sums_(message_bytes_) {
    Prng prng(shape.seed);
    const std::size_t count = message_bytes_ / 4;
    std::vector<const std::byte*> payloads;
    for (std::uint16_t worker = 0; worker < workers_; ++worker) {
      std::vector<std::byte>& bytes = elements_.emplace_back(message_bytes_);
      for (std::size_t i = 0; i < count; ++i) {
        const auto whole = static_cast<std::uint32_t>(prng.next());
        const auto fraction = static_cast<float>(prng.unit() - 0.5);
        std::memcpy(bytes.data() + 4 * i,
                    format_ == numbers::Format::kInt32 ? static_cast<const void*>(&whole) : &fraction, 4);
      }
    }
    for (const auto& bytes : elements_) payloads.push_back(bytes.data());
    numbers::Folder(count, workers_).fold({format_}, payloads, count, sums_.data());
  }

  std::size_t frames_a_worker() const override { return packets_; }
  std::size_t frame_bytes() const override { return kFrameBytes; }
  std::size_t sums_a_round() const override { return std::size_t{packets_} * workers_; }
  bool sums_only() const override { return true; }
  void next_round() override {
    ++message_;
    psn_ = (psn_ + packets_) & roce::kPsnMask;
  }
  void teach(switching::MacTable& addresses) const override {
    for (std::uint16_t worker = 0; worker < workers_; ++worker) {
      addresses.learn({kFirstWorkerMac + worker}, worker, now());
    }
  }
  void want_handler(switching::EthernetSwitchOptions& options) const override { options.roce.emplace(); }

  std::size_t write(std::uint16_t worker, std::size_t index, std::byte* at) const override {
    roce::Header header;
    header.opcode = index == 0              ? roce::Opcode::kWriteFirst
                    : index + 1 == packets_ ? roce::Opcode::kWriteLastImmediate
                                            : roce::Opcode::kWriteMiddle;
    header.queue_pair = kFirstQueuePair + worker;
    header.psn = (psn_ + static_cast<std::uint32_t>(index)) & roce::kPsnMask;
    header.length_bytes = static_cast<std::uint32_t>(roce::kAggregationBytes + message_bytes_);
    header.immediate = message_;
    const auto to = static_cast<std::uint16_t>((worker + 1) % workers_);
    roce::emit_ethernet(kFirstWorkerMac + to, kFirstWorkerMac + worker, {at, roce::kEthernetBytes});
    const std::span<std::byte> packet{at + roce::kEthernetBytes, roce::packet_bytes(header.opcode, roce::kPathMtu)};
    std::byte* payload = packet.data() + roce::emit(header, roce::kPathMtu, packet);
    if (index == 0) {
      roce::AggregationHeader mine;
      mine.format = format_;
      mine.rank = worker;
      mine.message = message_;
      mine.length_bytes = static_cast<std::uint32_t>(message_bytes_);
      const auto head = roce::emit(mine);
      payload = std::copy(head.begin(), head.end(), payload);
    }
    const std::span<const std::byte> elements = part(elements_[worker], index);
    std::memcpy(payload, elements.data(), elements.size());
    roce::seal(packet);
    return roce::kEthernetBytes + packet.size();
  }

  void check(link::PortNumber port, const link::Frame& frame, RoundCounts& counts) const override {
    roce::Packet packet;
    const bool is_whole = roce::parse(frame.span().subspan(roce::kEthernetBytes), packet) == roce::ParseError::kNone &&
                          roce::icrc_is_right(packet.packet);
    const std::size_t index = (packet.header.psn - psn_) & roce::kPsnMask;
    const auto from = static_cast<std::uint16_t>(packet.header.queue_pair - kFirstQueuePair);
    const bool is_in_place = is_whole && index < packets_ && from < workers_ && port == (from + 1) % workers_;
    if (is_whole && packet.header.flow_label == roce::kSummedFlowLabel) {
      ++counts.sums;
      const auto got = packet.payload.subspan(index == 0 ? roce::kAggregationBytes : 0);
      counts.wrong_sums += is_in_place && std::ranges::equal(got, part(sums_, index)) ? 0 : 1;
      return;
    }
    ++counts.forwarded;
    std::array<std::byte, kFrameBytesMax> sent;
    const std::size_t size_bytes = is_in_place ? write(from, index, sent.data()) : 0;
    const bool is_same = is_in_place && std::ranges::equal(std::span(sent).first(size_bytes), frame.span());
    counts.wrong_forwarded += is_same ? 0 : 1;
  }

 private:
  // The elements of one packet of the message.
  static std::span<const std::byte> part(const std::vector<std::byte>& message, std::size_t index) {
    if (index == 0) return std::span(message).first(roce::kFirstRoom);
    return std::span(message).subspan(index * roce::kPathMtu - roce::kAggregationBytes, roce::kPathMtu);
  }

  std::uint16_t workers_;
  std::uint32_t packets_;
  numbers::Format format_;
  std::size_t message_bytes_;
  std::uint32_t message_ = 0, psn_ = 0;
  std::vector<std::vector<std::byte>> elements_;  // by worker
  std::vector<std::byte> sums_;
};

}  // namespace

std::unique_ptr<Rounds> roce_rounds(const RoundShape& shape) {
  return std::make_unique<RoceRounds>(shape);
}

}  // namespace netfold::apps
