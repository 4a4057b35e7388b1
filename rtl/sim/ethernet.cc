#include "ethernet.h"

#include <algorithm>
#include <cstring>

namespace netfold::rtl {

std::uint64_t address_of_port(unsigned port) {
  constexpr std::uint64_t kPrefix = 0x46'4e'02;  // 02:4e:46
  return kPrefix | std::uint64_t{port} << 40;
}

group::RingPlace place_in_ring(unsigned position, unsigned size) {
  return {.position = position,
          .size = size,
          .own = address_of_port(position),
          .right = address_of_port((position + 1) % size),
          .left = address_of_port((position + size - 1) % size)};
}

Ethernet::Ethernet(std::vector<Device>& devices, const EthernetOptions& options)
    : devices_(devices), options_(options), prng_(options.seed), ports_(devices.size()) {}

double Ethernet::wire_cycles(const Frame& frame) const {
  if (options_.bytes_per_cycle <= 0) return 0;
  const std::size_t bytes = std::max(frame.size() + kEthernetOverheadBytes, kEthernetFrameBytesMin);
  return static_cast<double>(bytes) / options_.bytes_per_cycle;
}

void Ethernet::step() {
  const auto now = static_cast<double>(cycle_);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Port& port = ports_[i];
    while (!port.crossing.empty() && port.crossing.front().due <= cycle_ && port.fed_at <= now) {
      port.fed_at = std::max(port.fed_at, now - 1) + wire_cycles(port.crossing.front().frame);
      devices_[i].deliver(std::move(port.crossing.front().frame));
      port.crossing.pop_front();
    }
    devices_[i].step(port.free_at <= now);
    if (auto frame = devices_[i].sent()) {
      // The beats have taken their time already; the next frame waits for the rest of the wire's time.
      const double beats = static_cast<double>(frame->size()) / static_cast<double>(kBeatBytes);
      port.free_at = std::max(port.free_at, now + 1 - beats) + wire_cycles(*frame);
      cross(i, std::move(*frame));
    }
  }
  ++cycle_;
}

constexpr std::size_t kAddressBytes = 6;

void Ethernet::cross(std::size_t from, Frame frame) {
  std::size_t to = from;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const std::uint64_t address = address_of_port(static_cast<unsigned>(i));
    if (std::memcmp(frame.data(), &address, kAddressBytes) == 0) to = i;
  }
  if (prng_.chance(options_.loss)) return;
  if (prng_.chance(options_.damage)) {
    const std::size_t bit = prng_.below(frame.size() * 8);
    frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  if (prng_.chance(options_.duplicate)) schedule(to, frame, options_.latency + static_cast<unsigned>(prng_.below(200)));
  const bool waits = prng_.chance(options_.reorder);
  schedule(to, std::move(frame), options_.latency + (waits ? static_cast<unsigned>(prng_.below(400)) : 0));
}

void Ethernet::schedule(std::size_t to, Frame frame, unsigned delay) {
  auto& crossing = ports_[to].crossing;
  const std::uint64_t due = cycle_ + delay;
  const auto later =
      std::find_if(crossing.begin(), crossing.end(), [&](const Crossing& each) { return each.due > due; });
  crossing.insert(later, {due, std::move(frame)});
}

}  // namespace netfold::rtl
