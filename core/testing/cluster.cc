#include "testing/cluster.h"

#include <algorithm>
#include <utility>

namespace netfold::testing {
namespace {

constexpr std::uint32_t kFirstWorkerIp = 0x0a000100;
constexpr std::uint64_t kEventsMax = 4'000'000;  // a cluster that needs more runs in circles
constexpr Nanoseconds kStartsWithin = kSecond;   // the ranks of a job do
constexpr Nanoseconds kStopTakes = 2 * kSecond;  // at most, for a switch that stops in order

}  // namespace

Cluster::Cluster(Plan plan, std::function<void(const std::string&)> on_line)
    : plan_(std::move(plan)),
      around_(plan_, std::move(on_line)),
      start_(around_.timeline.now()),
      calm_at_(start_ + plan_.calm_at) {
  for (std::size_t job = 0; job < plan_.jobs.size(); ++job) {
    meetings_.push_back(std::make_unique<Meeting>(around_, static_cast<int>(job)));
    for (std::uint16_t rank = 0; rank < plan_.jobs[job].world; ++rank) {
      Seat seat;
      seat.rank = {static_cast<int>(job), rank};
      seat.ip = kFirstWorkerIp + static_cast<std::uint32_t>(seats_.size());
      seats_.push_back(std::move(seat));
    }
  }
}

Outcome Cluster::run() {
  Timeline& timeline = around_.timeline;
  around_.network.set_weather(plan_.weather);
  start_switch();
  for (Seat& seat : seats_) {
    around_.history.begin_trouble(seat.rank, "absent");
    start_later(seat, around_.draw_time(kStartsWithin));
  }
  for (const FaultPlan& fault : plan_.faults) timeline.at(start_ + fault.at, [this, &fault] { inflict(fault); });

  const LivenessChecker& liveness = around_.liveness;
  bool goes_on = run_until(calm_at_);
  if (goes_on) become_calm();
  goes_on = goes_on && run_until_all_end(calm_at_ + liveness.ending_max()) &&
            run_until(timeline.now() + liveness.forgetting_max());
  if (goes_on) {
    check_leftovers();
    around_.history.note("the last life begins");
    around_.liveness.on_last_life();
    for (Seat& seat : seats_) start_later(seat, around_.draw_time(kStartsWithin));
    goes_on = may_run() && run_until(timeline.now() + kStartsWithin + kMillisecond) &&
              run_until_all_end(timeline.now() + liveness.life_max()) &&
              run_until(timeline.now() + liveness.forgetting_max());
    if (goes_on) check_leftovers();
  }
  if (timeline.events() >= kEventsMax) {
    around_.history.violate("liveness", fmt::format("{} events, and no end", timeline.events()));
  }
  return {around_.history.violation(), timeline.events(), timeline.now() - start_, around_.admissions.lives()};
}

void Cluster::check_leftovers() {
  std::size_t connections = 0;
  for (const Seat& seat : seats_) connections += around_.network.connections_of(seat.ip);
  around_.leftovers.check(switch_->control(), around_.admissions, connections);
}

bool Cluster::may_run() const {
  return !around_.history.violation() && around_.timeline.events() < kEventsMax;
}

bool Cluster::run_until(Nanoseconds when) {
  while (may_run() && around_.timeline.step(when)) continue;
  return may_run();
}

bool Cluster::run_until_all_end(Nanoseconds limit) {
  const auto has_process = [](const Seat& seat) { return seat.process != nullptr; };
  while (may_run() && std::any_of(seats_.begin(), seats_.end(), has_process)) {
    if (around_.timeline.step(limit)) continue;
    for (const Seat& seat : seats_) {
      if (seat.process) around_.liveness.on_late(seat.rank, seat.process->doing());
    }
  }
  return may_run();
}

Nanoseconds Cluster::end_of(Nanoseconds lasts) const {
  return std::min(around_.timeline.now() + lasts, calm_at_ - kMicrosecond);
}

// --- Processes come and go ---

void Cluster::start_switch() {
  if (switch_) return;
  switch_ = std::make_unique<SwitchProcess>(around_, switch_lives_++);
}

void Cluster::crash_switch(bool power, Nanoseconds lasts) {
  if (!switch_) return;
  const char* const what = power ? "off" : "killed";
  around_.history.begin_trouble(kTheSwitch, what);
  if (power) around_.network.switch_off(kSwitchAddress.ip);
  switch_.reset();
  around_.timeline.at(end_of(lasts), [this, power, what] {
    around_.history.end_trouble(kTheSwitch, what);
    if (power) around_.network.switch_on(kSwitchAddress.ip);
    start_switch();
  });
}

void Cluster::stop_switch(Nanoseconds lasts) {
  if (!switch_) return;
  around_.history.begin_trouble(kTheSwitch, "stopped");
  switch_->stop();
  const Nanoseconds stopped_by = end_of(kStopTakes);
  around_.timeline.at(stopped_by, [this, life = switch_lives_] {
    if (life == switch_lives_) switch_.reset();
  });
  around_.timeline.at(std::max(stopped_by + 1, end_of(kStopTakes + lasts)), [this] {
    around_.history.end_trouble(kTheSwitch, "stopped");
    start_switch();
  });
}

void Cluster::start_later(Seat& seat, Nanoseconds after) {
  around_.timeline.after(after, [this, &seat] {
    if (!seat.process && !seat.is_off) start(seat);
  });
}

void Cluster::start(Seat& seat) {
  const JobPlan& job = job_of(seat);
  const auto port = static_cast<std::uint16_t>(kWorkerPort + (job.keeps_its_ports ? 0 : seat.lives));
  ++seat.lives;
  around_.history.end_trouble(seat.rank, "absent");
  const RankProcess::Options options{seat.rank, {seat.ip, port}, plan_.seed * 4096 + ++processes_};
  const auto on_exit = [this, &seat] { this->on_exit(seat); };
  if (job.is_among_peers) {
    Meeting& meeting = *meetings_[static_cast<std::size_t>(seat.rank.job)];
    seat.process = std::make_unique<PeerProcess>(around_, meeting, options, on_exit);
  } else {
    seat.process = std::make_unique<WorkerProcess>(around_, options, on_exit);
  }
}

// Called from the process itself, which therefore goes a little later.
void Cluster::on_exit(Seat& seat) {
  for (const char* const what : {"giving up", "leaving early", trouble::kDisagreeing}) {
    around_.history.end_trouble(seat.rank, what);
  }
  // A rank that is done and leaves in order is no trouble to those that it has connected to.
  if (!job_of(seat).is_among_peers) around_.history.begin_trouble(seat.rank, "absent");
  around_.timeline.after(0, [this, &seat, process = seat.process.get()] {
    if (seat.process.get() != process) return;
    seat.process.reset();
    const bool comes_back = !is_calm_ && seat.lives < job_of(seat).lives;
    if (comes_back) start_later(seat, around_.draw_time(kSecond / 2));
  });
}

void Cluster::crash(Seat& seat, bool power, Nanoseconds lasts) {
  if (!seat.process || seat.process->is_gone() || seat.is_off) return;
  around_.history.note("{} is {}", History::to_string(seat.rank), power ? "switched off" : "killed");
  if (power) around_.network.switch_off(seat.ip);
  seat.is_off = power;
  seat.process.reset();
  around_.history.begin_trouble(seat.rank, "absent");
  if (power) {
    around_.history.begin_trouble(seat.rank, trouble::kUnnoticed);
    end_when_noticed(seat, around_.timeline.now() + around_.liveness.silence_max());
  }
  around_.timeline.at(end_of(lasts), [this, &seat] {
    if (std::exchange(seat.is_off, false)) around_.network.switch_on(seat.ip);
    if (!seat.process) start(seat);
  });
}

// The former connection of a rank that lost its power is open at the switch until that has run for long enough.
void Cluster::end_when_noticed(Seat& seat, Nanoseconds noticed_at) {
  around_.timeline.at(noticed_at, [this, &seat] {
    const Nanoseconds later = switch_resumes_at_ + around_.liveness.silence_max();
    if (later > around_.timeline.now()) return end_when_noticed(seat, later);
    around_.history.end_trouble(seat.rank, trouble::kUnnoticed);
  });
}

// Pauses, partitions and outages have ended by now: no fault outlasts the phase.
void Cluster::become_calm() {
  around_.history.note("it is calm");
  is_calm_ = true;
  Weather calm;
  calm.delay_min = plan_.weather.delay_min;
  calm.delay_max = plan_.weather.delay_max;
  around_.network.set_weather(calm);
}

}  // namespace netfold::testing
