#include "switch/scenes.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "switch/capture.h"
#include "switch/comparison.h"
#include "switch/greeting.h"
#include "switch/switch_device.h"
#include "switch/verdicts.h"

namespace netfold::rtl {
namespace {

constexpr Ticks kPatience = 300'000 * kTicksPerNs;  // without a frame that leaves

// The frames that left a port while every worker had frames to send. The first sums do not count: until sums and
// forwarded frames alternate regularly, a cable waits between them.
struct Departures {
  static constexpr std::uint64_t kSumsBefore = 16;
  std::uint64_t frames = 0, gaps = 0, sums_before = 0;
  Ticks gap_time = 0, longest_gap = 0, first = 0, last = 0, on_cable = 0;

  void add(const TimedFrame& frame, bool is_sum) {
    if (frames == 0) {
      if (!is_sum || ++sums_before <= kSumsBefore) return;
      first = frame.first;
    } else if (frame.gap >= kMacPeriod) {  // smaller gaps come from the grid of its clock
      ++gaps;
      gap_time += frame.gap;
      longest_gap = std::max(longest_gap, frame.gap);
    }
    ++frames;
    on_cable += cable_time(frame.bytes.size());
    last = frame.first + cable_time(frame.bytes.size());
  }
  nlohmann::json to_json() const {
    const double time = static_cast<double>(std::max<Ticks>(1, last - first));
    return {{"frames", frames},
            {"gaps", gaps},
            {"gap_ns", static_cast<double>(gap_time) / kTicksPerNs},
            {"longest_gap_ns", static_cast<double>(longest_gap) / kTicksPerNs},
            {"share_of_line", static_cast<double>(on_cable) / time}};
  }
};

class Stage {
 public:
  explicit Stage(const Scene& scene);
  nlohmann::json run();

 private:
  void connect(unsigned port);

  Scene scene_;
  SwitchDevice device_;
  Job job_;
  Workers workers_;
  std::unique_ptr<Comparison> comparison_;
  std::vector<Departures> departures_;
  std::vector<std::unique_ptr<Capture>> captures_;
  Ticks last_departure_ = 0;
};

JobOptions on_first_ports(const Scene& scene) {
  JobOptions job = scene.job;
  const unsigned world = scene.world == 0 ? SwitchDevice::kPorts : scene.world;
  if (world < 2 || world > SwitchDevice::kPorts)
    throw std::invalid_argument("the number of workers must be from 2 to the number of ports");
  for (unsigned rank = 0; rank < world; ++rank) job.ports.push_back(rank);
  return job;
}

Stage::Stage(const Scene& scene)
    : scene_(scene),
      device_(scene.skew),
      job_(on_first_ports(scene)),
      workers_(job_, scene.workers),
      departures_(job_.world()) {
  const numbers::Format format = job_.options().format.format;
  if (scene.is_compared) {
    comparison_ = std::make_unique<Comparison>(SwitchDevice::kPorts, format);
  }
  configure(device_, comparison_ ? &comparison_->software() : nullptr, format != numbers::Format::kInt32,
            (1u << job_.world()) - 1);
  if (scene.pauses) enable_pause(device_);
  greet(device_, job_, comparison_.get());
  for (unsigned rank = 0; rank < job_.world(); ++rank) {
    if (!scene.pcap_path.empty()) {
      captures_.push_back(std::make_unique<Capture>(scene.pcap_path + "." + std::to_string(rank) + ".pcap"));
    }
    connect(rank);
  }
}

void Stage::connect(unsigned port) {
  device_.receiver(port).connect(
      [this, port](Ticks now) -> std::optional<MacReceiver::Arrival> {
        auto frame = workers_.next(port, now);
        if (!frame) return std::nullopt;
        return MacReceiver::Arrival{std::move(*frame)};
      },
      [this, port](const TimedFrame& frame) {
        if (comparison_) comparison_->entered(port, frame);
        workers_.entered(port, frame);
      });
  device_.on_frame(port, [this, port](const TimedFrame& frame) {
    if (comparison_) comparison_->left(port, frame);
    if (!captures_.empty()) captures_[port]->write(frame);
    last_departure_ = device_.now();
    const bool is_sum = workers_.arrived(port, frame);
    if (!workers_.has_sent_all()) departures_[port].add(frame, is_sum);
  });
}

nlohmann::json Stage::run() {
  const Ticks begun = device_.now();
  last_departure_ = begun;
  while (!workers_.is_done()) {
    device_.step();
    if (device_.now() > last_departure_ + kPatience) {
      const auto verdicts = comparison_ ? verdicts_of(device_, comparison_->software()) : nlohmann::json();
      throw std::runtime_error("the switch has stopped:" + workers_.progress() + " " + verdicts.dump());
    }
  }
  device_.run_for(20'000 * kTicksPerNs);  // for answers to the last frames, and for unexpected frames
  nlohmann::json result{{"world", job_.world()},
                        {"cycles", device_.cycles()},
                        {"packets", workers_.packets_a_worker()},
                        {"gradient_bytes", std::uint64_t{job_.gradient_bytes()} * scene_.workers.messages},
                        {"time_ns", static_cast<double>(workers_.last_arrival() - begun) / kTicksPerNs},
                        {"unexpected", workers_.unexpected()},
                        {"reordered", workers_.reordered()},
                        {"unanswered", workers_.unanswered()},
                        {"folds", workers_.folds().to_json()},
                        {"repeats", workers_.repeats().to_json()},
                        {"forwards", workers_.forwards().to_json()}};
  std::uint64_t underruns = 0, pauses = 0;
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
    underruns += device_.sender(port).underruns();
    pauses += device_.pauses(port);
  }
  result["underruns"] = underruns;
  result["pauses"] = pauses;
  result["sums_lost"] = sums_lost(device_);
  for (const Departures& departures : departures_) result["ports"].push_back(departures.to_json());
  if (comparison_) {
    result["verdicts"] = verdicts_of(device_, comparison_->software());
    comparison_->close();
    result["comparison"] = comparison_->to_json();
    result["differences"] = comparison_->differences() + workers_.unexpected();
  }
  return result;
}

}  // namespace

nlohmann::json run_scene(const Scene& scene) {
  return Stage(scene).run();
}

}  // namespace netfold::rtl
