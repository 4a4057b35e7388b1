#include "switch_bench/core_bench.h"

#include <algorithm>
#include <cstring>

namespace netfold::apps {
namespace {

constexpr std::uint16_t kFirstSwitchPort = 7172;
constexpr std::uint16_t kJobs = 8;
constexpr std::uint16_t kPlainType = 0x9000;  // loopback tests, which no protocol handler reads
constexpr std::uint64_t kFirstStation = 0x0200'0000'0200;
constexpr double kDisturbedRoundTimes = 8;   // a round that takes so much longer was disturbed by another process
constexpr std::uint32_t kWindowAtRate = 64;  // chunks: workers that hold back before a queue is full

switching::MacAddress station(link::PortNumber port) {
  return {kFirstStation + port};
}

// A switch of one thread, as one behind RSS: only packets of its own UDP port come here.
switching::EthernetSwitchOptions switch_of(std::uint16_t thread) {
  switching::EthernetSwitchOptions options;
  options.addresses.age_max = 1'000'000 * kSecond;
  options.netfold = {
      .ip = kSwitchIp, .first_port = static_cast<std::uint16_t>(kFirstSwitchPort + thread), .jobs_max = kJobs};
  return options;
}

}  // namespace

CoreBench::CoreBench(link::FrameDevices& devices, std::uint16_t thread, const BenchOptions& options)
    : devices_(devices),
      thread_(thread),
      options_(options),
      prng_(options.seed * 1000 + thread),
      switch_(switch_of(thread)) {
  switching::PipelinePorts ports;
  for (link::PortNumber number = 0; number < devices.ports(); ++number) {
    ports.all.push_back(&devices.port(number, thread));
    ports.receiving.push_back(number);
  }
  switch_thread_ = switch_.make_thread(0, devices.pool(), std::move(ports));
  for (link::PortNumber port = 0; port < devices.ports(); ++port) switch_.addresses().learn(station(port), port, 0);
  if (options_.rate_gbit_s > 0) options_.window = std::max(options_.window, kWindowAtRate);
}

CoreResult CoreBench::run() {
  begin_job();
  if (options_.rate_gbit_s > 0) {
    run_at_rate();
  } else {
    run_closed_loop();
  }
  end_job();
  check_counters();
  result_.plain_frames_lost = plain_offered_ - result_.plain_frames_delivered;
  return std::move(result_);
}

void CoreBench::begin_job() {
  JobShape shape;
  const bool varies = options_.chunks_a_job > 0;
  shape.lease.world = varies ? static_cast<std::uint16_t>(1 + prng_.below(options_.workers)) : options_.workers;
  shape.lease.epoch = ++epoch_;
  shape.lease.job = epoch_ % kJobs;
  shape.lease.slots = options_.window;
  shape.lease.first_chunk = varies ? static_cast<std::uint32_t>(prng_.next()) : 0;
  shape.format = options_.format;
  shape.count = options_.gradients;
  shape.lease.payload_bytes =
      static_cast<std::uint16_t>(numbers::encoded_bytes(shape.lease.wire_format(shape.format), shape.count));
  Ends ends = made_up_ends(shape.lease, kSwitchIp, static_cast<std::uint16_t>(kFirstSwitchPort + thread_));
  gradients_ = std::make_unique<Gradients>(shape, std::move(ends), options_.seed + epoch_);
  job_ = std::make_unique<switching::FrameJob>(gradients_->admission(), 0);
  switch_thread_.netfold->place(shape.lease.job, job_.get(), devices_.pool());
  next_chunk_ = shape.lease.first_chunk;
  pending_.assign(options_.window, {0, shape.lease.world, 0, std::vector<bool>(shape.lease.world, true)});
  undone_ = 0;
  ++result_.jobs;
}

void CoreBench::end_job() {
  release_held();
  for (int rounds = 0; rounds < 2; ++rounds) {
    pump_until_idle();
    collect();
  }
  switch_thread_.netfold->place(gradients_->shape().lease.job, nullptr, devices_.pool());
}

// A full window, the pipeline until it has nothing to do, the results: again and again.
void CoreBench::run_closed_loop() {
  std::uint64_t chunks_of_job = 0;
  while (result_.gradient_frames < options_.frames) {
    const std::uint16_t world = gradients_->shape().lease.world;
    const bool job_ends = options_.chunks_a_job > 0 && chunks_of_job >= options_.chunks_a_job;
    if (job_ends && undone_ == 0) {
      end_job();
      begin_job();
      chunks_of_job = 0;
      continue;
    }
    while (!job_ends && pending_[next_chunk_ % options_.window].results == world) {
      pending_[next_chunk_ % options_.window] = {next_chunk_, 0, clock_, std::vector<bool>(world)};
      ++undone_;
      for (std::uint16_t worker = 0; worker < world; ++worker) {
        offer(worker, next_chunk_);
        if (options_.plain > 0 && prng_.chance(options_.plain)) offer_plain(clock_);
      }
      ++next_chunk_;
      ++chunks_of_job;
    }
    pump_until_idle();
    collect();
    if (options_.faults.any()) recover();
  }
  for (int rounds = 0; undone_ > 0 && rounds < 10'000; ++rounds) {
    recover();
    pump_until_idle();
    collect();
  }
}

// Every frame at its time; the pipeline's clock goes on while it works, and leaps when it has nothing to do.
void CoreBench::run_at_rate() {
  const std::uint16_t world = gradients_->shape().lease.world;
  const double seconds_a_frame = static_cast<double>(gradients_->frame_bytes()) * 8 / (options_.rate_gbit_s * 1e9);
  const double ticks_a_frame = seconds_a_frame * CoreClock::ticks_a_second();
  const double plain_a_frame = options_.plain > 0 ? options_.plain / (1 - options_.plain) : 0;
  double plain_due = 0;
  std::uint64_t frame = 0;
  const auto due_of = [&](std::uint64_t which) {
    return static_cast<std::uint64_t>(static_cast<double>(which) * ticks_a_frame);
  };
  const std::uint64_t frames = options_.frames / world * world;
  while (frame < frames || undone_ > 0) {
    while (frame < frames && due_of(frame) <= clock_) {
      const auto worker = static_cast<std::uint16_t>(frame % world);
      const auto chunk = static_cast<std::uint32_t>(frame / world);
      Pending& pending = pending_[chunk % options_.window];
      if (worker == 0) {
        if (pending.results < world) {  // the window is full: workers would hold back here, and so miss the rate
          ++result_.refused_frames;
          break;
        }
        pending = {chunk, 0, 0, std::vector<bool>(world)};
        ++undone_;
      }
      pending.offered_at = due_of(frame);
      const std::uint64_t refused_before = result_.refused_frames;
      offer(worker, chunk);
      if (result_.refused_frames > refused_before) {  // once more a little later, as its worker would
        if (worker == 0) pending.results = world, --undone_;
        break;
      }
      plain_due += plain_a_frame;
      while (plain_due >= 1) {
        offer_plain(due_of(frame));
        plain_due -= 1;
      }
      ++frame;
    }
    if (pump_counted() == 0 && frame < frames) clock_ = std::max(clock_, due_of(frame));
    collect();
  }
}

void CoreBench::offer(std::uint16_t worker, std::uint32_t chunk, bool is_probe) {
  link::Frame frame = devices_.pool().allocate();
  if (frame.buffer == nullptr) {
    ++result_.refused_frames;
    return;
  }
  const std::size_t size_bytes = is_probe ? gradients_->question(wire::Kind::kProbe, worker, chunk, frame.bytes)
                                          : gradients_->contribution(worker, chunk, frame.bytes);
  frame.size_bytes = static_cast<std::uint32_t>(size_bytes);
  put(worker, frame, true);
}

void CoreBench::offer_plain(std::uint64_t due) {
  link::Frame frame = devices_.pool().allocate();
  if (frame.buffer == nullptr) return;
  const auto port = static_cast<link::PortNumber>(prng_.below(devices_.ports()));
  station(static_cast<link::PortNumber>((port + 1) % devices_.ports())).write(frame.bytes);
  station(port).write(frame.bytes + switching::MacAddress::kBytes);
  switching::write_u16(frame.bytes + 12, kPlainType);
  std::memcpy(frame.bytes + switching::kEthernetBytes, &due, sizeof due);
  frame.size_bytes = options_.plain_bytes;
  ++plain_offered_;
  put(port, frame, false);
}

void CoreBench::put(link::PortNumber port, link::Frame frame, bool with_faults) {
  const link::Faults& faults = options_.faults;
  if (with_faults && faults.any()) {
    if (prng_.chance(faults.loss)) {
      ++result_.faults_injected;
      return devices_.pool().release({&frame.buffer, 1});
    }
    if (prng_.chance(faults.duplicate)) {
      link::Frame copy = devices_.pool().allocate();
      if (copy.buffer != nullptr) {
        ++result_.faults_injected;
        std::memcpy(copy.bytes, frame.bytes, frame.size_bytes);
        copy.size_bytes = frame.size_bytes;
        held_.emplace_back(port, copy);
      }
    }
    if (prng_.chance(faults.reorder)) {
      ++result_.faults_injected;
      held_.emplace_back(port, frame);
      return;
    }
  }
  ++result_.offered_frames;
  if (devices_.far_end(port)->offer(thread_, {&frame, 1}) == 1) return;
  --result_.offered_frames;
  ++result_.refused_frames;
  devices_.pool().release({&frame.buffer, 1});
}

// Some of what was held back, long after what came behind it.
void CoreBench::release_held() {
  auto held = std::exchange(held_, {});
  for (const auto& [port, frame] : held) put(port, frame, false);
}

std::size_t CoreBench::pump_counted() {
  const auto time = static_cast<Nanoseconds>(static_cast<double>(clock_) / CoreClock::ticks_a_second() * 1e9);
  const std::uint64_t instructions = instruction_counter_.read_now();
  Stretch stretch;
  const std::size_t frames = switch_thread_.pipeline->pump(time);
  stretch.end();
  const std::uint64_t took = stretch.ticks();
  if (frames == 0) return 0;
  const double expected = ticks_a_frame_ * static_cast<double>(frames);
  ++result_.rounds;
  if (stretch.is_disturbed(expected, kDisturbedRoundTimes)) {
    ++result_.disturbed_rounds;
    ticks_a_frame_ *= 1.01;  // a core that stays slow is not disturbed
    clock_ += static_cast<std::uint64_t>(expected);
    return frames;
  }
  result_.ticks += took;
  result_.instructions += instruction_counter_.read_now() - instructions;
  result_.counted_frames += frames;
  ticks_a_frame_ += 0.01 * (static_cast<double>(took) / static_cast<double>(frames) - ticks_a_frame_);
  clock_ += took;
  return frames;
}

void CoreBench::pump_until_idle() {
  while (pump_counted() > 0) {
  }
}

void CoreBench::collect() {
  std::array<link::OutgoingFrame, 64> frames;
  const double microseconds_a_tick = 1e6 / CoreClock::ticks_a_second();
  for (link::PortNumber port = 0; port < devices_.ports(); ++port) {
    while (const std::size_t count = devices_.far_end(port)->collect(thread_, frames)) {
      for (const link::OutgoingFrame& frame : std::span(frames).first(count)) {
        if (switching::read_u16(frame.head.bytes + 12) == kPlainType) {
          std::uint64_t due;
          std::memcpy(&due, frame.head.bytes + switching::kEthernetBytes, sizeof due);
          ++result_.plain_frames_delivered;
          result_.plain_delay.add(static_cast<double>(clock_ - due) * microseconds_a_tick);
        } else {
          on_answer(port, frame);
        }
        devices_.pool().release(frame);
      }
    }
  }
}

void CoreBench::on_answer(std::uint16_t worker, const link::OutgoingFrame& frame) {
  const Gradients::Answer answer = gradients_->read(worker, frame);
  Pending& pending = pending_[answer.chunk % options_.window];
  switch (answer.kind) {
    case Gradients::Kind::kResult: break;
    case Gradients::Kind::kMissing: ++result_.resent; return offer(worker, answer.chunk);
    case Gradients::Kind::kWaiting: return;
    default: ++result_.wrong_sums; return;
  }
  ++result_.results_checked;
  if (pending.chunk != answer.chunk || pending.has_result[worker]) return;  // asked for twice
  pending.has_result[worker] = true;
  const std::uint16_t world = gradients_->shape().lease.world;
  if (++pending.results < world) return;
  --undone_;
  ++result_.chunks;
  result_.gradient_frames += world;
  result_.latency.add(static_cast<double>(clock_ - pending.offered_at) * 1e6 / CoreClock::ticks_a_second());
}

// Workers that wait for a result ask for it.
void CoreBench::recover() {
  release_held();
  const std::uint16_t world = gradients_->shape().lease.world;
  for (std::uint32_t back = 1; back <= options_.window; ++back) {
    const std::uint32_t chunk = next_chunk_ - back;
    const Pending& pending = pending_[chunk % options_.window];
    if (pending.results == world) continue;
    for (std::uint16_t worker = 0; worker < world; ++worker) {
      if (pending.has_result[worker]) continue;
      ++result_.probes;
      offer(worker, chunk, true);
    }
  }
}

// Each frame that was offered was received, and each that was received had exactly one fate.
void CoreBench::check_counters() {
  std::uint64_t received = 0, fates = 0, plain = 0;
  for (link::PortNumber port = 0; port < devices_.ports(); ++port) {
    const switching::PortCounters& it = switch_thread_.pipeline->counters(port);
    received += it.received.get();
    plain += it.forwarded.get() + it.flooded.get();
    fates += it.taken.get() + it.forwarded.get() + it.flooded.get() + it.filtered.get() + it.dropped.get() +
             it.dropped_handover.get();
    for (std::size_t flaw = 1; flaw < static_cast<std::size_t>(switching::Flaw::kIpHeader); ++flaw) {
      fates += it.flaws[flaw].get();
    }
  }
  result_.plain_frames = plain;
  result_.counters_add_up = received == fates && received == result_.offered_frames;
}

}  // namespace netfold::apps
