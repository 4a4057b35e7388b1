#include "switch/interface_switch.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <optional>
#include <span>

#include "netfold_switch.h"
#include "switch/protocols/roce/roce_job.h"
#include "switch/verdicts.h"

namespace netfold::rtl {
namespace {

constexpr Ticks kSlice = 2000 * kTicksPerNs;         // between two checks of the sockets
constexpr Ticks kAfterwards = 20'000 * kTicksPerNs;  // in which the hardware finishes its work
constexpr std::size_t kQueueMost = 4096;             // frames that wait for a port's cable
constexpr Nanoseconds kRest = 10 * kMillisecond;

}  // namespace

Result<std::unique_ptr<InterfaceSwitch>> InterfaceSwitch::open(const std::vector<std::string>& interfaces,
                                                               bool is_float, std::uint32_t folding_ports) {
  if (interfaces.size() > SwitchDevice::kPorts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} interfaces for a switch that was built with {} ports: netfold rtl switch build --ports",
                            interfaces.size(), SwitchDevice::kPorts));
  }
  std::vector<std::unique_ptr<link::PacketSocket>> sockets;
  for (const std::string& interface : interfaces) {
    auto socket = link::PacketSocket::open({.interface = interface, .is_promiscuous = true});
    if (!socket) return tl::unexpected(socket.error());
    sockets.push_back(std::move(*socket));
  }
  std::unique_ptr<InterfaceSwitch> opened(new InterfaceSwitch(std::move(sockets)));
  opened->configure(is_float, folding_ports);
  return opened;
}

InterfaceSwitch::InterfaceSwitch(std::vector<std::unique_ptr<link::PacketSocket>> sockets)
    : sockets_(std::move(sockets)), arrived_(sockets_.size()), leaving_(sockets_.size()) {
  for (unsigned port = 0; port < sockets_.size(); ++port) {
    device_.receiver(port).connect(
        [this, port](Ticks) -> std::optional<MacReceiver::Arrival> {
          if (arrived_[port].empty()) return std::nullopt;
          MacReceiver::Arrival next{std::move(arrived_[port].front())};
          arrived_[port].pop_front();
          return next;
        },
        [this](const TimedFrame&) { last_frame_ = device_.now(); });
    device_.on_frame(port, [this, port](const TimedFrame& frame) {
      last_frame_ = device_.now();
      if (!frame.is_damaged) leaving_[port].push_back(frame.bytes);
    });
  }
  thread_ = std::thread([this] { run(); });
}

InterfaceSwitch::~InterfaceSwitch() {
  is_stopping_ = true;
  wakeup_.wake();
  thread_.join();
}

std::unique_lock<std::mutex> InterfaceSwitch::hold() {
  ++visitors_;
  wakeup_.wake();
  std::unique_lock lock(mutex_);
  --visitors_;
  turn_.notify_one();
  return lock;
}

void InterfaceSwitch::send(unsigned port) {
  auto& queue = leaving_[port];
  std::array<iovec, link::PacketSocket::kFramesAtOnce> pieces;
  std::array<std::span<const iovec>, link::PacketSocket::kFramesAtOnce> frames;
  const std::size_t count = std::min(queue.size(), pieces.size());
  for (std::size_t i = 0; i < count; ++i) {
    pieces[i] = {queue[i].data(), queue[i].size()};
    frames[i] = std::span(&pieces[i], 1);
  }
  const std::size_t taken = sockets_[port]->send(std::span(frames).first(count), lost_);
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
}

bool InterfaceSwitch::exchange() {
  bool has_frames = false;
  for (unsigned port = 0; port < sockets_.size(); ++port) {
    for (const auto frame : sockets_[port]->receive()) {
      if (arrived_[port].size() < kQueueMost) {
        arrived_[port].emplace_back(frame.begin(), frame.end());
      } else {
        ++lost_;
      }
    }
    if (!leaving_[port].empty()) send(port);
    has_frames |= !arrived_[port].empty() || !leaving_[port].empty();
  }
  return has_frames;
}

void InterfaceSwitch::run() {
  std::vector<pollfd> polled;
  for (const auto& socket : sockets_) polled.push_back({socket->descriptor(), POLLIN, 0});
  polled.push_back({wakeup_.descriptor(), POLLIN, 0});
  while (!is_stopping_) {
    bool is_resting = false;
    {
      std::unique_lock lock(mutex_);
      turn_.wait(lock, [this] { return visitors_ == 0; });
      const bool has_frames = exchange();
      is_resting = !has_frames && device_.now() >= last_frame_ + kAfterwards;
      if (!is_resting) {
        const Nanoseconds begun = netfold::now();
        device_.run_for(kSlice);
        busy_s_ += to_seconds(netfold::now() - begun);
      }
    }
    if (!is_resting) continue;
    wakeup_.clear();
    if (!is_stopping_) netfold::wait_for(polled, netfold::now() + kRest);
  }
}

void InterfaceSwitch::configure(bool is_float, std::uint32_t folding_ports) {
  const auto lock = hold();
  device_.write(NETFOLD_SWITCH_AGG_MODE, is_float ? 1 : 0);
  device_.write(NETFOLD_SWITCH_AGG_PORT_CFG, static_cast<std::uint32_t>(std::popcount(folding_ports))
                                                     << NETFOLD_SWITCH_AGG_PORT_CFG_NUMBER_SHIFT |
                                                 folding_ports);
}

std::vector<std::pair<std::string, double>> InterfaceSwitch::counts() {
  const auto lock = hold();
  std::vector<std::pair<std::string, double>> all;
  for (std::uint32_t number = 0; number < kCountedVerdicts; ++number) {
    const auto verdict = static_cast<switching::RoceVerdict>(number);
    std::uint64_t count = 0;
    for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
      count += device_.read(NETFOLD_SWITCH_ROCE_FORWARDED + NETFOLD_SWITCH_PORT_STRIDE * port + 4 * number);
    }
    all.emplace_back(fmt::format("roce_{}{}", switching::is_drop(verdict) ? "drop_" : "", switching::name_of(verdict)),
                     count);
  }
  std::uint64_t underruns = 0;
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) underruns += device_.sender(port).underruns();
  all.emplace_back("underruns", underruns);
  all.emplace_back("lost_outside", lost_);
  all.emplace_back("cycles", device_.cycles());
  all.emplace_back("busy_s", busy_s_);
  all.emplace_back("cycles_per_s", busy_s_ > 0 ? static_cast<double>(device_.cycles()) / busy_s_ : 0);
  return all;
}

}  // namespace netfold::rtl
