// Writes of PCIe over Ethernet to one host: every round has other chunks, with the same elements.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "numbers/fold.h"
#include "switch_bench/rounds.h"
#include "wire/pcie.h"

namespace netfold::apps {
namespace {

namespace pcie = wire::pcie;

constexpr std::size_t kFramesARound = 64;  // about: what lies in queues, and in a thread's store of buffers, at once

class PcieRounds final : public Rounds {
 public:
  explicit PcieRounds(const RoundShape& shape)
      : workers_(shape.workers), chunks_(std::max<std::size_t>(1, kFramesARound / shape.workers)) {
    Prng prng(shape.seed);
    std::vector<std::vector<float>> elements(workers_, std::vector<float>(chunks_ * pcie::kElements));
    std::vector<const std::byte*> payloads;
    for (std::uint16_t worker = 0; worker < workers_; ++worker) {
      for (float& x : elements[worker]) x = static_cast<float>(prng.unit() - 0.5);
      payloads.push_back(reinterpret_cast<const std::byte*>(elements[worker].data()));
      for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
        frames_.push_back(frame_of(worker, elements[worker].data() + chunk * pcie::kElements));
      }
    }
    sums_.resize(chunks_ * pcie::kDataBytes);
    numbers::Folder(chunks_ * pcie::kElements, workers_)
        .fold({numbers::Format::kFp32}, payloads, chunks_ * pcie::kElements, sums_.data());
  }

  std::size_t frames_a_worker() const override { return chunks_; }
  std::size_t frame_bytes() const override { return pcie::kFrameBytes; }
  std::size_t sums_a_round() const override { return chunks_; }
  bool sums_only() const override { return false; }
  void next_round() override { first_ += static_cast<std::uint32_t>(chunks_); }
  void teach(switching::MacTable& addresses) const override { addresses.learn({kHostMac}, workers_, now()); }
  void want_handler(switching::EthernetSwitchOptions& options) const override { options.pcie.emplace(); }

  std::size_t write(std::uint16_t worker, std::size_t chunk, std::byte* at) const override {
    const auto number = static_cast<std::uint32_t>(first_ + chunk);
    std::memcpy(at, frames_[worker * chunks_ + chunk].data(), pcie::kFrameBytes);
    pcie::readdress({at + pcie::kEthernetBytes, pcie::kPacketBytes}, number, number,
                    std::uint64_t{number} * pcie::kDataBytes);
    return pcie::kFrameBytes;
  }

  void check(link::PortNumber, const link::Frame& frame, RoundCounts& counts) const override {
    pcie::Write fields;
    std::span<const std::byte> data;
    const bool is_write =
        frame.size_bytes == pcie::kFrameBytes &&
        pcie::parse(frame.span().subspan(pcie::kEthernetBytes), fields, data) == pcie::ParseError::kNone &&
        fields.chunk - first_ < chunks_;
    if (is_write && fields.kind == pcie::Kind::kSum) {
      ++counts.sums;
      const std::byte* const right = sums_.data() + (fields.chunk - first_) * pcie::kDataBytes;
      counts.wrong_sums += std::memcmp(data.data(), right, data.size()) != 0 ? 1 : 0;
      return;
    }
    ++counts.forwarded;
    FrameBytes sent;
    if (is_write) write(fields.rank, fields.chunk - first_, sent.data());
    counts.wrong_forwarded += is_write && std::equal(sent.begin(), sent.end(), frame.bytes) ? 0 : 1;
  }

 private:
  using FrameBytes = std::array<std::byte, pcie::kFrameBytes>;

  FrameBytes frame_of(std::uint16_t worker, const float* elements) const {
    FrameBytes frame{};
    switching::MacAddress{kHostMac}.write(frame.data());
    switching::MacAddress{kFirstWorkerMac + worker}.write(frame.data() + switching::MacAddress::kBytes);
    switching::write_u16(frame.data() + 2 * switching::MacAddress::kBytes, pcie::kEtherType);
    pcie::Write fields;
    fields.rank = worker;
    fields.world = workers_;
    const auto data = pcie::emit(fields, std::span(frame).subspan(pcie::kEthernetBytes));
    std::memcpy(data.data(), elements, data.size());
    return frame;
  }

  std::uint16_t workers_;
  std::size_t chunks_;
  std::uint32_t first_ = 0;
  std::vector<FrameBytes> frames_;  // by worker, then chunk
  std::vector<std::byte> sums_;
};

}  // namespace

std::unique_ptr<Rounds> pcie_rounds(const RoundShape& shape) {
  return std::make_unique<PcieRounds>(shape);
}

}  // namespace netfold::apps
