#include "switch_bench/cable_bench.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>

#include "group/via_switch/operation.h"

namespace netfold::apps {
namespace {

using group::Window;

constexpr std::uint16_t kFirstUdpPort = 40000;  // of the workers
constexpr std::size_t kBurst = 32;
constexpr Nanoseconds kLinksMax = 5 * kSecond, kPause = 100 * kMicrosecond;
constexpr Nanoseconds kKernelPeriod = kMillisecond;      // between two looks at what is not gradients
constexpr Nanoseconds kAnswersMax = 200 * kMillisecond;  // for what is still to come to the last probes
// A generator waits longer than a worker before it asks, so that a short pause of the machine does not look like a
// loss.
constexpr group::WindowOptions kPatience{
    .timeout_min = 50 * kMillisecond, .timeout_start = 200 * kMillisecond, .timeout_max = 400 * kMillisecond};

void pause() {
  std::this_thread::sleep_for(std::chrono::nanoseconds(kPause));
}

// As many elements as a chunk takes.
std::uint16_t count_in(const wire::Lease& lease, numbers::Format format) {
  return static_cast<std::uint16_t>(group::chunks_of(1, lease.wire_format(format), lease).elements_per_chunk);
}

}  // namespace

CableBench::CableBench(link::FrameDevices& devices, const CableOptions& options)
    : devices_(devices), options_(options), workers_(devices.ports()) {}

Result<std::unique_ptr<CableBench>> CableBench::join(link::FrameDevices& devices, const CableOptions& options) {
  const auto address = link::parse_address(options.join.switch_address);
  if (!address) return tl::unexpected(address.error());
  CableOptions resolved = options;  // names are not looked up where a worker sits
  resolved.join.switch_address = link::to_string(*address);
  std::unique_ptr<CableBench> bench(new CableBench(devices, resolved));
  if (auto up = bench->wait_for_links(); !up) return tl::unexpected(up.error());
  if (auto seated = bench->take_seats(); !seated) return tl::unexpected(seated.error());
  const wire::Lease& lease = bench->workers_[0].control->lease();
  const std::uint16_t most = count_in(lease, options.format);
  if (options.gradients > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--gradients {}: a frame of this job takes {} at most, {} bytes (--mtu {})",
                            options.gradients, most, lease.payload_bytes, options.join.mtu));
  }
  bench->make_job();
  return bench;
}

CableBench::~CableBench() {
  for (Worker& worker : workers_) {
    if (worker.control != nullptr) worker.seat->leave();
  }
  const auto says_goodbye = [](const Worker& worker) { return worker.control != nullptr && !worker.seat->has_ended(); };
  while (std::ranges::any_of(workers_, says_goodbye)) {  // bounded by leave()
    pump_kernels();
    pause();
  }
  for (const Worker& worker : workers_) {
    for (const link::OutgoingFrame& frame : worker.backlog) devices_.pool().release(frame);
  }
  if (spare_.buffer != nullptr) devices_.pool().release({&spare_.buffer, 1});
}

Result<void> CableBench::wait_for_links() {
  const Nanoseconds until = now() + kLinksMax;
  for (link::PortNumber port = 0; port < devices_.ports(); ++port) {
    while (!devices_.port(port, 0).is_up()) {
      if (now() > until) {
        return fail(ErrorCode::kSystem, fmt::format("the link of {} is down: see whether its cable is in, and whether "
                                                    "the switch at the other end has its port up",
                                                    devices_.port(port, 0).name()));
      }
      pause();
      devices_.watch_links();
    }
  }
  return {};
}

// All workers join at once, since a job is admitted when it is whole.
Result<void> CableBench::take_seats() {
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    group::JoinOptions join = options_.join;
    join.rank = rank;
    join.world = static_cast<std::uint16_t>(workers_.size());
    join.udp_port = static_cast<std::uint16_t>(kFirstUdpPort + rank);
    workers_[rank].seat = std::make_unique<TapWorker>(options_.first_address + rank, join);
  }
  const auto joins = [](const Worker& worker) { return !worker.seat->has_ended(); };
  while (std::ranges::any_of(workers_, joins)) {  // bounded by join.timeout_s
    pump_kernels();
    pause();
  }
  std::optional<Error> failure;
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    auto joined = workers_[rank].seat->joined();
    if (joined) {
      workers_[rank].control = *joined;
    } else if (!failure || failure->code == ErrorCode::kTimeout) {  // which says only that others did not come
      failure = joined.error();
      failure->message = fmt::format("worker {} at {}: {}", rank, devices_.port(rank, 0).name(), failure->message);
    }
  }
  if (failure) return tl::unexpected(*failure);
  return {};
}

void CableBench::make_job() {
  JobShape shape;
  shape.lease = workers_[0].control->lease();
  shape.format = options_.format;
  shape.count = options_.gradients > 0 ? options_.gradients : count_in(shape.lease, options_.format);
  Ends ends;
  for (const link::Address& shard : workers_[0].control->shard_addresses()) {
    ends.switch_ip = shard.ip.v4();
    ends.switch_udp_ports.push_back(shard.port);
  }
  group::WindowOptions window = kPatience;
  window.window_chunks = options_.join.window;
  window.start_chunks = UINT32_MAX;  // the bench sets the rate, the window only follows
  for (Worker& worker : workers_) {
    const auto rank = static_cast<std::uint16_t>(ends.workers.size());
    ends.workers.push_back({worker.seat->mac(), worker.seat->switch_mac(), worker.seat->ip(),
                            static_cast<std::uint16_t>(kFirstUdpPort + rank)});
    worker.window = std::make_unique<Window>(shape.lease, window);
  }
  gradients_ = std::make_unique<Gradients>(shape, std::move(ends), options_.seed);
  pending_.resize(shape.lease.slots);
}

// Carries frames that hold no gradients, in both directions.
void CableBench::pump_kernels() {
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].seat == nullptr) continue;
    workers_[rank].seat->from_kernel(devices_.port(rank, 0), devices_.pool());
    receive(rank, now());
  }
}

Result<CableResult> CableBench::run(std::uint64_t frames, double rate_gbit_s) {
  const std::size_t world = workers_.size();
  frames = std::max<std::uint64_t>(frames / world, 1) * world;
  const double period =
      rate_gbit_s > 0 ? static_cast<double>(gradients_->frame_bytes()) * 8 / rate_gbit_s : 0;  // ns, and Gbit/s
  result_ = {};
  const Totals before = totals();
  const Nanoseconds begun = now();
  std::uint64_t let_out = 0;
  for (Nanoseconds kernels = begun, at = begun;; at = now()) {
    for (; let_out < frames && static_cast<double>(let_out) * period <= static_cast<double>(at - begun); ++let_out) {
      workers_[let_out % world].window->extend(1, at);
    }
    bool is_idle = true;
    for (std::uint16_t rank = 0; rank < world; ++rank) is_idle &= !pump(rank, at);
    ++result_.rounds;
    result_.idle_rounds += is_idle ? 1 : 0;
    if (is_idle) sched_yield();  // to the switch, where it is on this machine
    if (at - kernels >= kKernelPeriod) {
      kernels = at;
      pump_kernels();
      if (auto alive = check(at); !alive) return tl::unexpected(alive.error());
    }
    const bool is_done = std::ranges::all_of(workers_, [](const Worker& it) { return it.window->is_idle(); });
    if (let_out == frames && is_done) break;
  }
  const Nanoseconds ended = now();
  const auto unanswered = [&](const Totals& so_far) {
    const std::uint64_t asked = so_far.probes - before.probes, answered = so_far.answered - before.answered;
    return asked - std::min(asked, answered);
  };
  while (unanswered(totals()) > 0 && now() < ended + kAnswersMax) pump_kernels();
  const Totals after = totals();
  result_.contributions_lost = after.resent - before.resent;
  result_.results_lost = unanswered(after);
  result_.probes = after.probes - before.probes;
  result_.missed_frames = after.missed_frames - before.missed_frames;
  result_.time = ended - begun;
  result_.sending_time = last_sent_ - begun;
  return std::move(result_);
}

// A probe is answered by a notice, or by a result that had come already. If the result had not, it was lost, or the
// probe itself.
CableBench::Totals CableBench::totals() const {
  Totals sum;
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    const group::WindowStats& window = workers_[rank].window->stats();
    sum.resent += window.resent_chunks;
    sum.probes += window.probes;
    sum.answered += workers_[rank].notices + window.duplicate_results + workers_[rank].late_results;
    sum.missed_frames += devices_.port(rank, 0).stats().missed_frames;
  }
  return sum;
}

bool CableBench::pump(std::uint16_t rank, Nanoseconds now) {
  const bool has_come = receive(rank, now);
  workers_[rank].window->on_time(now);
  return send(rank, now) || has_come;
}

bool CableBench::receive(std::uint16_t rank, Nanoseconds now) {
  std::array<link::Frame, kBurst> frames;
  const std::size_t count = devices_.port(rank, 0).receive(frames);
  for (std::size_t i = 0; i < count; ++i) {
    on_frame(rank, frames[i], now);
    devices_.pool().release({&frames[i].buffer, 1});
  }
  return count > 0;
}

void CableBench::on_frame(std::uint16_t rank, const link::Frame& frame, Nanoseconds now) {
  Worker& worker = workers_[rank];
  if (gradients_ == nullptr || !gradients_->is_for(rank, frame)) return worker.seat->to_kernel(frame.span());
  const Gradients::Answer answer = gradients_->read(rank, {frame, {}});
  worker.has_answer = true;
  if (answer.kind == Gradients::Kind::kResult) ++result_.results_checked;
  if (answer.kind == Gradients::Kind::kWrong || answer.kind == Gradients::Kind::kOther) ++result_.wrong_sums;
  if (answer.kind == Gradients::Kind::kMissing || answer.kind == Gradients::Kind::kWaiting) ++worker.notices;
  if (answer.kind == Gradients::Kind::kEcho) return worker.window->on_echo(answer.chunk, now);
  const auto position = worker.window->position_of(answer.chunk);
  if (!position) {
    worker.late_results += answer.kind == Gradients::Kind::kResult ? 1 : 0;
    return;
  }
  switch (answer.kind) {
    case Gradients::Kind::kResult: return on_result(worker, *position, now);
    case Gradients::Kind::kMissing: return worker.window->on_missing(*position, now);
    case Gradients::Kind::kWaiting: return worker.window->on_waiting(*position, answer.rank, now);
    default: return;
  }
}

void CableBench::on_result(Worker& worker, Window::Position position, Nanoseconds now) {
  if (!worker.window->on_result(position, now)) return;
  ++result_.gradient_frames;
  Pending& pending = pending_[position & (pending_.size() - 1)];
  if (pending.position != position || ++pending.results < workers_.size()) return;
  ++result_.chunks;
  result_.latency.add(static_cast<double>(now - pending.last_sent) * 1e-3);
}

void CableBench::note_sent(Window::Position position, Nanoseconds now) {
  Pending& pending = pending_[position & (pending_.size() - 1)];
  if (pending.position != position) pending = {position, 0, 0, 0};
  if (pending.sent++ < workers_.size()) pending.last_sent = now;
}

bool CableBench::send(std::uint16_t rank, Nanoseconds now) {
  Worker& worker = workers_[rank];
  while (worker.backlog.size() < kBurst) {
    if (spare_.buffer == nullptr) spare_ = devices_.pool().allocate();
    if (spare_.buffer == nullptr) break;
    const auto next = worker.window->next(now);
    if (!next) break;
    const auto chunk = static_cast<std::uint32_t>(next->position);
    const bool has_elements = next->kind == wire::Kind::kContribution;
    spare_.size_bytes =
        static_cast<std::uint32_t>(has_elements ? gradients_->contribution(rank, chunk, spare_.bytes)
                                                : gradients_->question(next->kind, rank, chunk, spare_.bytes));
    if (has_elements) note_sent(next->position, now);
    worker.backlog.push_back({spare_, {}});
    spare_ = {};
  }
  if (worker.backlog.empty()) return false;
  const std::size_t taken = devices_.port(rank, 0).send(worker.backlog);
  worker.backlog.erase(worker.backlog.begin(), worker.backlog.begin() + static_cast<std::ptrdiff_t>(taken));
  if (taken > 0) last_sent_ = now;
  return taken > 0;
}

// Whether the job still lives and something moves.
Result<void> CableBench::check(Nanoseconds now) {
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    if (auto alive = worker.control->pump(now); !alive) return alive;
    // Where another is missing, its own cable's error is the better one, and comes first.
    const Nanoseconds patience = from_seconds(options_.join.timeout_s) * (worker.window->missing_rank() ? 2 : 1);
    if (worker.window->is_idle() || now - worker.window->last_progress() < patience) continue;
    const std::string port = devices_.port(rank, 0).name();
    if (!worker.has_answer) {
      return fail(ErrorCode::kSwitchFailed,
                  fmt::format("the switch at {} has admitted the job, but worker {} at {} gets no answer to its "
                              "gradients: see whether frames of {} bytes pass (--mtu), and UDP both ways",
                              options_.join.switch_address, rank, port, gradients_->frame_bytes()));
    }
    return fail(
        ErrorCode::kSwitchFailed,
        fmt::format("worker {} at {} has had no result for {:g} s: see whether the switch at {} still runs, and "
                    "that cable's link",
                    rank, port, options_.join.timeout_s, options_.join.switch_address));
  }
  return {};
}

}  // namespace netfold::apps
