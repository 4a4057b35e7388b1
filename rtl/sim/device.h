// One smart NIC as a host sees it: a Verilated netfold_nic with host memory behind its memory ports and frames at its
// Ethernet port, driven through its registers as a driver would.
//
// Host addresses are this process's own. No function blocks; step() is one cycle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "netfold_nic.h"

namespace netfold::rtl {

inline constexpr unsigned kLanes = NETFOLD_RTL_LANES;
inline constexpr std::size_t kBeatBytes = std::size_t{4} * kLanes;
inline constexpr std::size_t kMaxRing = 32;

using Frame = std::vector<std::byte>;
using Address = std::array<std::uint8_t, 6>;

Address address_of_rank(unsigned rank);  // locally administered

struct DeviceOptions {
  unsigned read_latency = 40, write_latency = 40;  // cycles between command and answer
  double stall = 0;                                // probability that a port of the host does not accept or offer data
  std::uint64_t seed = 1;
};

struct RingPlace {
  unsigned position = 0, size = 2;
  bool bfp = false;
  unsigned ring = 1, epoch = 1;
  std::uint32_t request_timeout = 0x10000;  // in 1024 cycles
  std::uint32_t link_timeout = 0x4000;      // in cycles
};

struct Ended {
  std::uint16_t tag;
  unsigned status;  // NETFOLD_NIC_DONE, ...
};

class Device {
 public:
  explicit Device(const DeviceOptions& options = {});
  ~Device();
  Device(Device&&) noexcept;

  // --- As a driver, through the registers; each access takes a few cycles of only this device. ---
  void join(const RingPlace& place);  // soft reset, settings, enable
  void reset();
  bool post(const float* source, float* destination, std::uint32_t count, std::uint16_t tag);  // false: no room
  std::uint32_t read(std::uint32_t offset);
  bool write(std::uint32_t offset, std::uint32_t value);
  std::optional<Ended> completion();  // empty: no request has ended
  bool interrupt() const;

  // --- As the device's surroundings ---
  // One cycle. `may_send`: the MAC accepts a beat.
  void step(bool may_send);
  void deliver(Frame frame) { arriving_.push_back(std::move(frame)); }
  // A whole frame that has left; empty if no frame has left.
  std::optional<Frame> sent();
  std::uint64_t cycles() const;
  std::uint64_t host_beats() const { return host_beats_; }  // read and written so far

 private:
  struct Burst {
    std::byte* at;
    std::size_t bytes, done = 0;
    std::uint64_t due;  // the cycle of its data, or of its confirmation
  };
  struct Model;

  void drive_memory();
  void drive_ethernet(bool may_send);
  void take_answers();
  bool goes() { return options_.stall == 0 || !prng_.chance(options_.stall); }

  DeviceOptions options_;
  Prng prng_;
  std::unique_ptr<Model> model_;
  std::deque<Burst> reads_, writes_, confirmations_;
  std::deque<Frame> arriving_, sent_;
  std::size_t arrived_ = 0;  // bytes of the first arriving frame
  Frame leaving_;
  std::uint64_t host_beats_ = 0;
};

}  // namespace netfold::rtl
