// The rounds of a generator (round_bench.h), for each protocol: the frames of one round, the handler that folds them,
// and the frames that must come out. Ports 0 to workers - 1 are the workers', the next one is their host's, or the
// switch's own.
#pragma once

#include <cstdint>
#include <memory>

#include "numbers/format.h"
#include "switch/ethernet/ethernet_switch.h"

namespace netfold::apps {

struct RoundCounts {
  std::uint64_t forwarded = 0, wrong_forwarded = 0, sums = 0, wrong_sums = 0;
  std::uint64_t out() const { return forwarded + sums; }
};

class Rounds {
 public:
  virtual ~Rounds() = default;

  virtual std::size_t frames_a_worker() const = 0;
  virtual std::size_t frame_bytes() const = 0;  // of most of them
  virtual std::size_t sums_a_round() const = 0;
  virtual bool sums_only() const = 0;  // what is folded is not forwarded as well

  // Into `at`; returns the frame's size.
  virtual std::size_t write(std::uint16_t worker, std::size_t frame, std::byte* at) const = 0;
  // A frame that came out of `port`, in one piece: counts it, and whether it is right.
  virtual void check(link::PortNumber port, const link::Frame& frame, RoundCounts& counts) const = 0;
  virtual void next_round() = 0;

  // Where frames for it go: the port of each of their addresses.
  virtual void teach(switching::MacTable& addresses) const = 0;
  // Asks the switch for the handler of these frames.
  virtual void want_handler(switching::EthernetSwitchOptions& options) const = 0;
  virtual void place_jobs(const switching::SwitchThread&, link::BufferPool&) {}  // in the one that folds
};

struct RoundShape {
  std::uint16_t workers = 8;
  numbers::Format format = numbers::Format::kFp32;
  std::uint32_t window = 16;  // chunks, or packets of a message, a round
  std::uint16_t gradients = 366;
  std::uint64_t seed = 1;
};
std::unique_ptr<Rounds> pcie_rounds(const RoundShape& shape);     // writes of 192 bytes: case 2 of dpdk-switch
std::unique_ptr<Rounds> roce_rounds(const RoundShape& shape);     // one message a round, in a ring of workers
std::unique_ptr<Rounds> netfold_rounds(const RoundShape& shape);  // chunks of one job

constexpr std::uint64_t kHostMac = 0x0200'0000'0001, kFirstWorkerMac = 0x0200'0000'0010;

}  // namespace netfold::apps
