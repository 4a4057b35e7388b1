// The data plane of a switch of frames: threads that each run a pipeline (frames/pipeline.h) over the ports of a device
// library, with the dialects of a folding switch.
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
#include "engine/data_plane.h"
#include "frames/dialect.h"
#include "frames/headers.h"
#include "frames/mac_table.h"
#include "frames/pcie_dialect.h"
#include "frames/roce_dialect.h"
#include "jobs/job_table.h"
#include "link/frame_devices.h"

namespace netfold::engine {

enum class Layout : std::uint8_t { kRunToCompletion, kPerPort };

struct FramePlaneOptions {
  std::uint32_t ip = 0;          // of the switch: data packets for it are folded
  std::uint16_t first_port = 0;  // UDP port of the first folding thread, the next follow
  std::uint16_t threads = 1;     // that fold: a power of two
  Layout layout = Layout::kRunToCompletion;
  std::vector<int> cores;  // of the folding threads, then of the ports'; empty: any
  std::uint16_t jobs_max = 64;
  bool always_polls = false;  // else a thread with nothing to do sleeps for moments
  frames::ParseOptions parse;
  frames::MacTableOptions addresses;
  // Told once a second, at most, what changed at a port: it went down, frames were dropped and why. From a thread of
  // the plane's own.
  std::function<void(jobs::LogLevel, const std::string&)> log;
  // Dialects besides Netfold's own.
  std::optional<frames::RoceOptions> roce;
  std::optional<frames::PcieOptions> pcie;
};

// Threads that send, and receive queues a port, for FrameDeviceOptions.
std::uint16_t threads_of(const FramePlaneOptions& options, std::size_t ports);
std::uint16_t receivers_of(const FramePlaneOptions& options);

// The devices were opened for the numbers above.
Result<std::unique_ptr<DataPlane>> start_frame_plane(FramePlaneOptions options,
                                                     std::unique_ptr<link::FrameDevices> devices,
                                                     DataPlane::OnMismatch on_mismatch);

// Memory that a job takes from the devices' buffers.
std::size_t frame_memory_bytes(const wire::Lease& lease, std::size_t room_bytes);

}  // namespace netfold::engine
