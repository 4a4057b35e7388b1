#include "switch_bench/case2_bench.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "base/prng.h"
#include "engine/thread_setup.h"
#include "frames/pcie_dialect.h"
#include "numbers/fold.h"
#include "wire/pcie.h"

namespace netfold::apps {
namespace {

namespace pcie = wire::pcie;

constexpr std::uint64_t kHost = 0x0200'0000'0001, kFirstWorker = 0x0200'0000'0010;
constexpr std::size_t kFramesARound = 64;  // about: what lies in queues, and in a thread's store of buffers, at once
constexpr Nanoseconds kSumsMax = 5 * kSecond, kTimeMost = 20 * kSecond;
constexpr double kDisturbedTimes = 4;
constexpr std::uint16_t kFoldingThread = 0, kReceivingThread = 1;  // of two

// Every worker's writes of one round, and their sums; rounds differ in their chunks' numbers alone.
class Writes {
 public:
  Writes(std::uint16_t workers, std::uint64_t seed) : chunks_(std::max<std::size_t>(1, kFramesARound / workers)) {
    Prng prng(seed);
    std::vector<std::vector<float>> elements(workers, std::vector<float>(chunks_ * pcie::kElements));
    std::vector<const std::byte*> payloads;
    for (std::uint16_t worker = 0; worker < workers; ++worker) {
      for (float& x : elements[worker]) x = static_cast<float>(prng.unit() - 0.5);
      payloads.push_back(reinterpret_cast<const std::byte*>(elements[worker].data()));
      for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
        frames_.push_back(frame_of(worker, workers, elements[worker].data() + chunk * pcie::kElements));
      }
    }
    sums_.resize(chunks_ * pcie::kDataBytes);
    numbers::Folder(chunks_ * pcie::kElements, workers)
        .fold({numbers::Format::kFp32}, payloads, chunks_ * pcie::kElements, sums_.data());
  }

  std::size_t chunks() const { return chunks_; }
  void write(std::uint16_t worker, std::size_t chunk, std::uint32_t first, std::byte* at) const {
    const auto number = static_cast<std::uint32_t>(first + chunk);
    std::memcpy(at, frames_[worker * chunks_ + chunk].data(), pcie::kFrameBytes);
    pcie::readdress({at + pcie::kEthernetBytes, pcie::kPacketBytes}, number, number,
                    std::uint64_t{number} * pcie::kDataBytes);
  }
  // Counts what came out of the host's port.
  void check(std::span<const std::byte> frame, std::uint32_t first, Case2Result& result) const {
    pcie::Write fields;
    std::span<const std::byte> data;
    const bool is_write = frame.size() == pcie::kFrameBytes &&
                          pcie::parse(frame.subspan(pcie::kEthernetBytes), fields, data) == pcie::ParseError::kNone &&
                          fields.chunk - first < chunks_;
    if (is_write && fields.kind == pcie::Kind::kSum) {
      ++result.sums_checked;
      const std::byte* const right = sums_.data() + (fields.chunk - first) * pcie::kDataBytes;
      result.wrong_sums += std::memcmp(data.data(), right, data.size()) != 0 ? 1 : 0;
      return;
    }
    ++result.writes_checked;
    std::array<std::byte, pcie::kFrameBytes> sent;
    if (is_write) write(fields.rank, fields.chunk - first, first, sent.data());
    result.wrong_writes += is_write && std::equal(sent.begin(), sent.end(), frame.begin()) ? 0 : 1;
  }

 private:
  using FrameBytes = std::array<std::byte, pcie::kFrameBytes>;
  static FrameBytes frame_of(std::uint16_t worker, std::uint16_t workers, const float* elements) {
    FrameBytes frame{};
    frames::MacAddress{kHost}.write(frame.data());
    frames::MacAddress{kFirstWorker + worker}.write(frame.data() + frames::MacAddress::kBytes);
    frames::write_u16(frame.data() + 2 * frames::MacAddress::kBytes, pcie::kEtherType);
    pcie::Write fields;
    fields.rank = worker;
    fields.world = workers;
    const auto data = pcie::emit(fields, std::span(frame).subspan(pcie::kEthernetBytes));
    std::memcpy(data.data(), elements, data.size());
    return frame;
  }

  std::size_t chunks_;
  std::vector<FrameBytes> frames_;  // by worker, then chunk
  std::vector<std::byte> sums_;
};

// The pipeline of one thread.
std::unique_ptr<frames::Pipeline> make_pipeline(link::FrameDevices& devices, std::uint16_t thread, bool receives,
                                                bool folds, frames::MacTable& addresses,
                                                const frames::Settings& settings) {
  frames::PipelinePorts ports;
  for (link::PortNumber number = 0; number < devices.ports(); ++number) {
    ports.all.push_back(&devices.port(number, thread));
    if (receives) ports.receiving.push_back(number);
  }
  if (!(receives && folds)) ports.peers = {&devices.inbox(kFoldingThread)};
  if (!receives) ports.inbox = ports.peers[0];
  std::vector<std::unique_ptr<frames::Dialect>> dialects;
  dialects.push_back(std::make_unique<frames::PcieDialect>());
  const frames::PipelineOptions options{{}, 1, folds ? std::uint16_t{0} : frames::kNoFolding};
  auto pipeline =
      std::make_unique<frames::Pipeline>(devices.pool(), std::move(ports), addresses, std::move(dialects), options);
  pipeline->outbox().set_settings(settings);
  return pipeline;
}

class Case2Bench {
 public:
  Case2Bench(link::FrameDevices& devices, const Case2Options& options)
      : devices_(devices), options_(options), writes_(options.workers, options.seed), host_(options.workers) {
    addresses_.learn({kHost}, host_, now());
  }

  Case2Result run() {
    std::atomic<bool> stops{false};
    std::thread folder;
    if (options_.two_cores) {
      folder = std::thread([&] { fold_until(stops); });
    }
    std::thread receiver([&] { receive(); });
    receiver.join();
    stops = true;
    if (folder.joinable()) folder.join();
    return result_;
  }

 private:
  int core(std::size_t which) const { return which < options_.cores.size() ? options_.cores[which] : engine::kAnyCore; }

  void receive() {
    engine::set_up_thread("nf-receive", core(0));
    devices_.enter_thread();
    queue_ = options_.two_cores ? kReceivingThread : kFoldingThread;
    auto pipeline = make_pipeline(devices_, queue_, true, !options_.two_cores, addresses_, settings_);
    const auto lacks_frames = [&] {
      return result_.forwarding.frames < options_.frames || result_.forwarding_and_folding.frames < options_.frames;
    };
    // Where the cores are shared with others, every round may wait for the other core's turn.
    for (const Nanoseconds until = now() + kTimeMost; lacks_frames() && now() < until;) {
      run_round(*pipeline, result_.forwarding, false);
      run_round(*pipeline, result_.forwarding_and_folding, true);
      if (result_.missing_sums > 0) break;
    }
    pipeline.reset();
    devices_.leave_thread();
  }

  void fold_until(const std::atomic<bool>& stops) {
    engine::set_up_thread("nf-fold", core(1));
    devices_.enter_thread();
    auto pipeline = make_pipeline(devices_, kFoldingThread, false, true, addresses_, settings_);
    PipelineTime time;
    while (!stops) {
      if (time.pump(*pipeline, now()) == 0) sched_yield();
    }
    result_.folding = time;
    pipeline.reset();
    devices_.leave_thread();
  }

  // All of a round's writes come in, and go out; where ports fold, their sums as well.
  void run_round(frames::Pipeline& pipeline, PipelineTime& time, bool folds) {
    settings_.folding_ports = folds ? (std::uint64_t{1} << options_.workers) - 1 : 0;
    for (std::size_t chunk = 0; chunk < writes_.chunks(); ++chunk) {
      for (std::uint16_t worker = 0; worker < options_.workers; ++worker) {
        link::Frame frame = devices_.pool().allocate();
        writes_.write(worker, chunk, first_, frame.bytes);
        frame.size_bytes = pcie::kFrameBytes;
        devices_.far_end(worker)->offer(queue_, {&frame, 1});
      }
    }
    const Nanoseconds begun = now();
    while (time.pump(pipeline, begun) > 0) {
    }
    const std::uint64_t sums = result_.sums_checked + (folds ? writes_.chunks() : 0);
    do {
      for (std::uint16_t queue = 0; queue < threads_of(options_); ++queue) collect(queue);
      pipeline.pump(begun);  // what the host's queue had no room for
    } while (result_.sums_checked < sums && now() - begun < kSumsMax);
    result_.missing_sums += sums - std::min(sums, result_.sums_checked);
    first_ += static_cast<std::uint32_t>(writes_.chunks());
  }

  void collect(std::uint16_t queue) {
    std::array<link::OutgoingFrame, 64> frames;
    while (const std::size_t count = devices_.far_end(host_)->collect(queue, frames)) {
      for (const link::OutgoingFrame& frame : std::span(frames).first(count)) {
        writes_.check(frame.head.span(), first_, result_);
        devices_.pool().release(frame);
      }
    }
  }

  link::FrameDevices& devices_;
  const Case2Options& options_;
  Writes writes_;
  link::PortNumber host_;
  std::uint16_t queue_ = 0;
  frames::MacTable addresses_{{8192, 1'000'000 * kSecond}};
  frames::Settings settings_;
  std::uint32_t first_ = 0;
  Case2Result result_;
};

}  // namespace

std::size_t PipelineTime::pump(frames::Pipeline& pipeline, Nanoseconds now) {
  const long preemptions = CoreClock::preemptions();
  const std::uint64_t begin = CoreClock::ticks();
  const std::size_t moved = pipeline.pump(now);
  const std::uint64_t took = CoreClock::ticks() - begin;
  if (moved == 0) return 0;
  ++rounds;
  const double expected = frames > 0 ? static_cast<double>(ticks) / static_cast<double>(frames) : 1000;
  if (CoreClock::preemptions() != preemptions ||
      static_cast<double>(took) > kDisturbedTimes * expected * static_cast<double>(moved) + 20'000) {
    ++disturbed_rounds;
    return moved;
  }
  frames += moved;
  ticks += took;
  return moved;
}

double PipelineTime::frames_s() const {
  return ticks > 0 ? static_cast<double>(frames) / static_cast<double>(ticks) * CoreClock::ticks_a_second() : 0;
}

Case2Result run_case2(link::FrameDevices& devices, const Case2Options& options) {
  return Case2Bench(devices, options).run();
}

}  // namespace netfold::apps
