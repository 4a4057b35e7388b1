#include "switch/greeting.h"

namespace netfold::rtl {
namespace {

constexpr Ticks kFloodTime = 3000 * kTicksPerNs;  // of a short frame, through all ports

}  // namespace

void greet(SwitchDevice& device, const Job& job, Comparison* comparison) {
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
    device.on_frame(port, [=](const TimedFrame& frame) {
      if (comparison != nullptr) comparison->left(port, frame);
    });
  }
  for (unsigned rank = 0; rank < job.world(); ++rank) {
    const unsigned port = job.port(rank);
    bool is_sent = false;
    device.receiver(port).connect(
        [&](Ticks) -> std::optional<MacReceiver::Arrival> {
          if (is_sent) return std::nullopt;
          is_sent = true;
          return MacReceiver::Arrival{job.greeting(rank)};
        },
        [=](const TimedFrame& frame) {
          if (comparison != nullptr) comparison->entered(port, frame);
        });
    device.run_for(kFloodTime);
    device.receiver(port).connect({}, {});
  }
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) device.on_frame(port, {});
}

}  // namespace netfold::rtl
