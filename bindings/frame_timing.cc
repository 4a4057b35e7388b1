// `netfold bench dialects` measures what the switch of frames costs a core: a generator fills the ports' queues in
// memory, then the pipeline works them off, and only that is timed. Forwarding alone (no port folds) and folding take
// turns, so that drift between them cancels. Every 16th round is checked instead of timed: every sum, bit by bit.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "frames/pcie_dialect.h"
#include "frames/pipeline.h"
#include "frames/roce_dialect.h"
#include "module.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold {
namespace {

namespace roce = wire::roce;
namespace pcie = wire::pcie;
using link::Frame;

constexpr std::size_t kRoomBytes = 2048, kHeadroomBytes = 128;
constexpr int kCheckedEvery = 16;
constexpr std::uint64_t kHost = 0x020000000001, kFirstWorker = 0x020000000010;

// Buffers made once; the one released last is given first, as it is still in the cache.
class FixedPool final : public link::BufferPool {
 public:
  explicit FixedPool(std::size_t buffers) : memory_(buffers * kRoomBytes), buffers_(buffers) {
    for (std::size_t i = 0; i < buffers; ++i) {
      buffers_[i].bytes = memory_.data() + i * kRoomBytes + kHeadroomBytes;
      free_.push_back(&buffers_[i]);
    }
  }
  using BufferPool::release;
  void release(std::span<link::Buffer* const> buffers) override {
    for (link::Buffer* const buffer : buffers) {
      if (--own(buffer)->references == 0) free_.push_back(own(buffer));
    }
  }
  void retain(link::Buffer* buffer, std::uint32_t count) override { own(buffer)->references += count; }
  Frame allocate() override {
    if (free_.empty()) return {};
    Counted* const buffer = free_.back();
    free_.pop_back();
    buffer->references = 1;
    return {buffer, buffer->bytes, kRoomBytes - kHeadroomBytes, link::kNoPort, false};
  }
  bool is_sole(const link::Buffer* buffer) const override {
    return static_cast<const Counted*>(buffer)->references == 1;
  }
  std::size_t room_bytes() const override { return kRoomBytes - kHeadroomBytes; }
  std::size_t in_use() const override { return buffers_.size() - free_.size(); }

 private:
  struct Counted : link::Buffer {
    std::byte* bytes = nullptr;
    std::uint32_t references = 0;
  };
  static Counted* own(link::Buffer* buffer) { return static_cast<Counted*>(buffer); }

  std::vector<std::byte> memory_;
  std::vector<Counted> buffers_;
  std::vector<Counted*> free_;
};

class QueuePort final : public link::Port {
 public:
  explicit QueuePort(FixedPool& pool) : pool_(pool) {}
  void queue(const Frame& frame) { queue_.push_back(frame); }
  void keep_sent(bool keeps) { keeps_ = keeps; }
  std::vector<std::vector<std::byte>> take_sent() { return std::exchange(sent_, {}); }

  std::size_t receive(std::span<Frame> into) override {
    const std::size_t count = std::min(into.size(), queue_.size() - next_);
    std::copy_n(queue_.begin() + static_cast<std::ptrdiff_t>(next_), count, into.begin());
    next_ += count;
    if (next_ == queue_.size()) queue_.clear(), next_ = 0;
    return count;
  }
  std::size_t send(std::span<const link::OutgoingFrame> batch) override {
    for (const link::OutgoingFrame& frame : batch) {
      if (keeps_) sent_.emplace_back(frame.head.bytes, frame.head.bytes + frame.head.size_bytes);
      pool_.release(frame);
    }
    stats_.sent_frames += batch.size();
    return batch.size();
  }
  std::string name() const override { return "queue"; }
  link::PortStats stats() const override { return stats_; }

 private:
  FixedPool& pool_;
  std::vector<Frame> queue_;
  std::size_t next_ = 0;
  bool keeps_ = false;
  std::vector<std::vector<std::byte>> sent_;
  link::PortStats stats_;
};

// The frames of a round, worker by worker, and what their sums must be.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::uint32_t frames_a_worker() const = 0;
  virtual std::size_t write(std::uint16_t worker, std::uint32_t frame, std::byte* at) = 0;
  virtual void next_round() = 0;
  // How many right sums the frame is, sent in this round: 0 or 1. Throws if it is a wrong one.
  virtual int check(std::span<const std::byte> frame) const = 0;
  virtual std::uint32_t sums_a_round() const = 0;
  virtual std::unique_ptr<frames::Dialect> dialect(const frames::AggregationSettings& settings) const = 0;

 protected:
  static void fill(std::vector<std::vector<float>>& elements, Prng& prng) {
    for (auto& of_worker : elements) {
      for (float& x : of_worker) x = static_cast<float>(prng.unit() - 0.5);
    }
  }
  static std::vector<float> sum(const std::vector<std::vector<float>>& elements) {
    std::vector<const std::byte*> payloads;
    for (const auto& of_worker : elements) payloads.push_back(reinterpret_cast<const std::byte*>(of_worker.data()));
    std::vector<float> result(elements[0].size());
    numbers::Folder(result.size(), payloads.size())
        .fold({numbers::Format::kFp32}, payloads, result.size(), reinterpret_cast<std::byte*>(result.data()));
    return result;
  }
};

class PcieWorkload final : public Workload {
 public:
  explicit PcieWorkload(std::uint16_t workers)
      : workers_(workers), elements_(workers, std::vector<float>(kChunks * pcie::kElements)) {
    Prng prng(192);
    fill(elements_, prng);
    sums_ = sum(elements_);
  }
  std::uint32_t frames_a_worker() const override { return kChunks; }
  std::uint32_t sums_a_round() const override { return kChunks; }
  void next_round() override { first_ += kChunks; }
  std::unique_ptr<frames::Dialect> dialect(const frames::AggregationSettings&) const override {
    return std::make_unique<frames::PcieDialect>();
  }

  std::size_t write(std::uint16_t worker, std::uint32_t frame, std::byte* at) override {
    frames::MacAddress{kHost}.write(at);
    frames::MacAddress{kFirstWorker + worker}.write(at + 6);
    frames::write_u16(at + 12, pcie::kEtherType);
    pcie::Write fields;
    fields.rank = worker;
    fields.world = workers_;
    fields.sequence = fields.chunk = first_ + frame;
    fields.sum_address = std::uint64_t{first_ + frame} * pcie::kDataBytes;
    const auto data = pcie::emit(fields, {at + pcie::kEthernetBytes, pcie::kPacketBytes});
    std::memcpy(data.data(), elements_[worker].data() + frame * pcie::kElements, data.size());
    return pcie::kFrameBytes;
  }

  int check(std::span<const std::byte> frame) const override {
    pcie::Write fields;
    std::span<const std::byte> data;
    if (pcie::parse(frame.subspan(pcie::kEthernetBytes), fields, data) != pcie::ParseError::kNone) {
      throw std::runtime_error("a frame that is no write came out");
    }
    if (fields.kind != pcie::Kind::kSum) return 0;
    if (std::memcmp(data.data(), sums_.data() + (fields.chunk - first_) * pcie::kElements, data.size()) != 0) {
      throw std::runtime_error("a wrong sum");
    }
    return 1;
  }

 private:
  static constexpr std::uint32_t kChunks = 64;
  std::uint16_t workers_;
  std::uint32_t first_ = 0;
  std::vector<std::vector<float>> elements_;
  std::vector<float> sums_;
};

// One message a round; workers write to each other in a ring.
class RoceWorkload final : public Workload {
 public:
  explicit RoceWorkload(std::uint16_t workers) : workers_(workers), elements_(workers, std::vector<float>(kElements)) {
    Prng prng(1024);
    fill(elements_, prng);
    sums_ = sum(elements_);
  }
  std::uint32_t frames_a_worker() const override { return kPackets; }
  std::uint32_t sums_a_round() const override { return kPackets * workers_; }
  void next_round() override {
    ++message_;
    psn_ = (psn_ + kPackets) & roce::kPsnMask;
  }
  std::unique_ptr<frames::Dialect> dialect(const frames::AggregationSettings& settings) const override {
    return std::make_unique<frames::RoceDialect>(settings);
  }

  std::size_t write(std::uint16_t worker, std::uint32_t index, std::byte* at) override {
    roce::Header header;
    header.opcode = index == 0              ? roce::Opcode::kWriteFirst
                    : index + 1 == kPackets ? roce::Opcode::kWriteLastImmediate
                                            : roce::Opcode::kWriteMiddle;
    header.queue_pair = 0x100u + worker;
    header.psn = (psn_ + index) & roce::kPsnMask;
    header.length_bytes = roce::kAggregationBytes + kElements * 4;
    header.immediate = message_;
    const auto to = static_cast<std::uint16_t>((worker + 1) % workers_);
    roce::emit_ethernet(kFirstWorker + to, kFirstWorker + worker, {at, roce::kEthernetBytes});
    const std::span<std::byte> packet{at + roce::kEthernetBytes, roce::packet_bytes(header.opcode, roce::kPathMtu)};
    std::byte* payload = packet.data() + roce::emit(header, roce::kPathMtu, packet);
    const auto* elements = reinterpret_cast<const std::byte*>(elements_[worker].data());
    if (index == 0) {
      roce::AggregationHeader mine;
      mine.format = numbers::Format::kFp32;
      mine.rank = worker;
      mine.message = message_;
      mine.length_bytes = kElements * 4;
      const auto head = roce::emit(mine);
      std::memcpy(payload, head.data(), head.size());
      std::memcpy(payload + head.size(), elements, roce::kFirstRoom);
    } else {
      std::memcpy(payload, elements + index * roce::kPathMtu - roce::kAggregationBytes, roce::kPathMtu);
    }
    roce::seal(packet);
    return roce::kEthernetBytes + packet.size();
  }

  int check(std::span<const std::byte> frame) const override {
    roce::Packet packet;
    if (roce::parse(frame.subspan(roce::kEthernetBytes), packet) != roce::ParseError::kNone ||
        !roce::icrc_is_right(packet.packet) || packet.header.flow_label != roce::kSummedFlowLabel) {
      throw std::runtime_error("a frame that is no sum came out");
    }
    const std::uint32_t index = (packet.header.psn - psn_) & roce::kPsnMask;
    const std::size_t skip = index == 0 ? roce::kAggregationBytes : 0;
    const auto* sums = reinterpret_cast<const std::byte*>(sums_.data());
    const std::byte* expected = index == 0 ? sums : sums + index * roce::kPathMtu - roce::kAggregationBytes;
    if (std::memcmp(packet.payload.data() + skip, expected, roce::kPathMtu - skip) != 0) {
      throw std::runtime_error("a wrong sum");
    }
    return 1;
  }

 private:
  static constexpr std::uint32_t kPackets = roce::kMessagePackets;
  static constexpr std::uint32_t kElements = roce::kMessageRoom / 4;
  std::uint16_t workers_;
  std::uint32_t message_ = 0, psn_ = 0;
  std::vector<std::vector<float>> elements_;
  std::vector<float> sums_;
};

// One pipeline and the queues around it. Port 0 is the host's, where there is one.
class Bench {
 public:
  Bench(Workload& workload, std::uint16_t workers, bool folds) : workload_(workload), pool_(4096) {
    frames::PipelinePorts all;
    for (link::PortNumber port = 0; port < workers; ++port) {
      ports_.push_back(std::make_unique<QueuePort>(pool_));
      all.all.push_back(ports_.back().get());
      all.receiving.push_back(port);
      addresses_.learn({kFirstWorker + port}, port, now());
    }
    ports_.push_back(std::make_unique<QueuePort>(pool_));
    all.all.push_back(ports_.back().get());
    addresses_.learn({kHost}, workers, now());
    std::vector<std::unique_ptr<frames::Dialect>> dialects;
    dialects.push_back(workload.dialect(by_job_));
    settings_.folding_ports = folds ? (std::uint64_t{1} << workers) - 1 : 0;  // not the host's
    pipeline_ = std::make_unique<frames::Pipeline>(pool_, std::move(all), addresses_, std::move(dialects));
    pipeline_->outbox().set_settings(settings_);
  }

  // One round of the workload; seconds that the pipeline took.
  double run(bool is_checked) {
    const auto workers = static_cast<std::uint16_t>(ports_.size() - 1);
    for (std::uint32_t frame = 0; frame < workload_.frames_a_worker(); ++frame) {
      for (std::uint16_t worker = 0; worker < workers; ++worker) {
        Frame buffer = pool_.allocate();
        buffer.size_bytes = static_cast<std::uint32_t>(workload_.write(worker, frame, buffer.bytes));
        buffer.port = worker;
        ports_[worker]->queue(buffer);
      }
    }
    for (const auto& port : ports_) port->keep_sent(is_checked);
    const Nanoseconds begun = now();
    while (pipeline_->pump(begun) > 0) {
    }
    const double elapsed_s = to_seconds(now() - begun);
    if (is_checked) check();
    return elapsed_s;
  }

 private:
  void check() {
    std::uint32_t sums = 0;
    for (const auto& port : ports_) {
      for (const auto& frame : port->take_sent()) sums += static_cast<std::uint32_t>(workload_.check(frame));
    }
    if (sums != workload_.sums_a_round()) throw std::runtime_error("sums are missing");
    if (pool_.in_use() != 0) throw std::runtime_error("a buffer leaked");
  }

  Workload& workload_;
  FixedPool pool_;
  frames::Settings settings_;
  frames::AggregationSettings by_job_{settings_};
  frames::MacTable addresses_;
  std::vector<std::unique_ptr<QueuePort>> ports_;
  std::unique_ptr<frames::Pipeline> pipeline_;
};

nb::dict time_dialect(const std::string& name, std::uint16_t workers, std::uint32_t rounds) {
  if (workers < 2 || workers > 16) throw nb::value_error("2 to 16 workers");
  std::unique_ptr<Workload> workload;
  if (name == "pcie") workload = std::make_unique<PcieWorkload>(workers);
  if (name == "roce") workload = std::make_unique<RoceWorkload>(workers);
  if (!workload) throw nb::value_error("dialects: pcie, roce");
  Bench forwarding(*workload, workers, false), folding(*workload, workers, true);
  std::vector<double> forwarding_s, folding_s;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const bool is_checked = round % kCheckedEvery == 0;
    const double forwarded_s = forwarding.run(false), folded_s = folding.run(is_checked);
    workload->next_round();
    if (is_checked) continue;
    forwarding_s.push_back(forwarded_s);
    folding_s.push_back(folded_s);
  }
  nb::dict result;
  result["frames_a_round"] = workload->frames_a_worker() * workers;
  std::byte frame[kRoomBytes];
  result["frame_bytes"] = workload->write(0, 1, frame);
  result["forwarding_s"] = forwarding_s;
  result["folding_s"] = folding_s;
  return result;
}

}  // namespace
}  // namespace netfold

void bind_frame_timing(nb::module_& module) {
  module.def(
      "time_dialect", netfold::time_dialect, "dialect"_a, "workers"_a, "rounds"_a,
      "Seconds that one core took to forward, and to fold, each round of frames of `dialect` (pcie, roce), ports "
      "in memory; sums are checked in other rounds.");
}
