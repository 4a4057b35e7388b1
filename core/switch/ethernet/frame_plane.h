// The data plane of an Ethernet switch: threads that each run a pipeline (switch/ethernet/pipeline.h) over the ports of
// a device library, with the protocol handlers of a folding switch.
//
// Two layouts. Run to completion: every thread receives, folds and sends; it receives from a queue of its own of each
// port that has so many, and port p falls to thread p mod n otherwise. Per port (dpdk-switch, section 4.3 and Fig. 8):
// a thread for each port receives and forwards, and hands gradients to the folding thread that owns their chunk, which
// sends the results itself. In both a slot belongs to one thread, so folding needs no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "link/frame_devices.h"
#include "switch/data_plane.h"
#include "switch/ethernet/ethernet_switch.h"
#include "switch/ethernet/frame_stats.h"
#include "switch/jobs/job_table.h"

namespace netfold::switching {

enum class ThreadLayout : std::uint8_t { kRunToCompletion, kPerPort };

struct FramePlaneOptions {
  EthernetSwitchOptions ethernet;  // with `netfold`, whose jobs the plane folds; its threads are a power of two
  ThreadLayout layout = ThreadLayout::kRunToCompletion;
  std::vector<int> cores;     // of the folding threads, then of the ports'; empty: any
  bool always_polls = false;  // else a thread with nothing to do sleeps for moments
  // Told once a second, at most, what changed at a port: it went down, frames were dropped and why. From a thread of
  // the plane's own.
  LogSink log;
};

// Threads that send, and receive queues a port, for FrameDeviceOptions.
std::uint16_t threads_of(const FramePlaneOptions& options, std::size_t ports);
std::uint16_t receivers_of(const FramePlaneOptions& options);

struct AggregationConfigUpdate {     // what is not named stays as it is
  std::optional<std::uint16_t> job;  // of RoCE workers: an exception for it, from its next epoch on; else for all
  std::optional<std::uint64_t> ports;
  std::optional<bool> adds_floats;
  std::optional<link::PortNumber> uplink;  // of RoCE workers; link::kNoPort: it is not a leaf
};

class FramePlane : public DataPlane {
 public:
  virtual FrameStats frame_stats() const = 0;  // a snapshot, from any thread
  // From the next frame on, from any thread. kRefused where too many jobs have an exception.
  virtual Result<void> configure(const AggregationConfigUpdate& change) = 0;
};

// The devices were opened for the numbers above.
Result<std::unique_ptr<FramePlane>> start_frame_plane(FramePlaneOptions options,
                                                      std::unique_ptr<link::FrameDevices> devices,
                                                      DataPlane::OnMismatch on_mismatch);

// Memory that a job takes from the devices' buffers.
std::size_t frame_memory_bytes(const wire::Lease& lease, std::size_t room_bytes);

}  // namespace netfold::switching
