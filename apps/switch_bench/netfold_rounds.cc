// Netfold's own packets: the chunks of one job.
#include <algorithm>
#include <array>
#include <bit>

#include "switch_bench/gradients.h"
#include "switch_bench/rounds.h"

namespace netfold::apps {
namespace {

constexpr std::uint16_t kUdpPort = 7172;

class NetfoldRounds final : public Rounds {
 public:
  explicit NetfoldRounds(const RoundShape& shape)
      : chunks_(shape.window), gradients_(job_of(shape), ends_of(job_of(shape).lease), shape.seed) {}

  std::size_t frames_a_worker() const override { return chunks_; }
  std::size_t frame_bytes() const override { return gradients_.frame_bytes(); }
  std::size_t sums_a_round() const override { return std::size_t{chunks_} * workers(); }
  bool sums_only() const override { return true; }
  void next_round() override { first_ += chunks_; }
  void teach(switching::MacTable& addresses) const override {
    addresses.learn({kHostMac}, workers(), now());
    for (std::uint16_t worker = 0; worker < workers(); ++worker) {
      addresses.learn(gradients_.ends().workers[worker].mac, worker, now());
    }
  }
  void want_handler(switching::EthernetSwitchOptions& options) const override {
    options.netfold = {.ip = kSwitchIp, .first_port = kUdpPort, .jobs_max = 1};
  }
  void place_jobs(const switching::SwitchThread& thread, link::BufferPool& pool) override {
    job_ = std::make_unique<switching::FrameJob>(gradients_.admission(), 0);
    thread.netfold->place(gradients_.shape().lease.job, job_.get(), pool);
  }

  std::size_t write(std::uint16_t worker, std::size_t chunk, std::byte* at) const override {
    return gradients_.contribution(worker, first_ + static_cast<std::uint32_t>(chunk), at);
  }

  void check(link::PortNumber port, const link::Frame& frame, RoundCounts& counts) const override {
    if (port < workers()) {
      const Gradients::Answer answer = gradients_.read(port, {frame, {}});
      const bool is_right = answer.kind == Gradients::Kind::kResult && answer.chunk - first_ < chunks_;
      ++counts.sums;
      counts.wrong_sums += is_right ? 0 : 1;
      return;
    }
    ++counts.forwarded;
    switching::ParsedFrame parsed;
    wire::Packet packet;
    const bool is_contribution = switching::parse(frame, {}, parsed) == switching::Flaw::kNone && parsed.has_udp &&
                                 wire::parse(parsed.payload(), packet) == wire::ParseError::kNone &&
                                 packet.header.worker < workers();
    std::array<std::byte, 2048> sent;
    const std::size_t size_bytes =
        is_contribution ? gradients_.contribution(packet.header.worker, packet.header.chunk, sent.data()) : 0;
    const bool is_same = is_contribution && std::ranges::equal(std::span(sent).first(size_bytes), frame.span());
    counts.wrong_forwarded += is_same ? 0 : 1;
  }

 private:
  static JobShape job_of(const RoundShape& shape) {
    JobShape job;
    job.lease.world = shape.workers;
    job.lease.slots = std::bit_ceil(shape.window);
    job.lease.epoch = 1;
    job.format = shape.format;
    job.count = shape.gradients;
    job.lease.payload_bytes =
        static_cast<std::uint16_t>(numbers::encoded_bytes(job.lease.wire_format(job.format), job.count));
    return job;
  }
  static Ends ends_of(const wire::Lease& lease) {
    Ends ends = made_up_ends(lease, kSwitchIp, kUdpPort);
    for (Ends::Worker& worker : ends.workers) worker.switch_mac = {kHostMac};
    return ends;
  }
  std::uint16_t workers() const { return gradients_.shape().lease.world; }

  std::uint32_t chunks_, first_ = 0;
  Gradients gradients_;
  std::unique_ptr<switching::FrameJob> job_;
};

}  // namespace

std::unique_ptr<Rounds> netfold_rounds(const RoundShape& shape) {
  return std::make_unique<NetfoldRounds>(shape);
}

}  // namespace netfold::apps
