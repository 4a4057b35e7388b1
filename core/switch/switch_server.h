// A whole switch in one object: the control conversation with its job table, and the packet path. The program
// netfold-switch and the Python class Switch are thin shells around it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "link/link.h"
#include "switch/data_plane.h"
#include "switch/jobs/job_table.h"
#include "switch/switch_control.h"
#include "switch/switch_stats.h"

namespace netfold::switching {

struct SwitchServerOptions {
  link::Address bind = {0, 0};  // of the control port; port 0 lets the kernel pick
  DataPlaneOptions data;        // its bind.ip and jobs_max are taken from here
  std::string secret;           // workers must know it; "": jobs keep tokens of their own
  bool require_auth = false;    // tag every data packet too; needs a secret
  std::string parent;           // the switch above, "host:port"; "": none
  std::string parent_secret;    // that the switch above asks for; "": the same as `secret`
  std::uint16_t jobs_max = 64;
  std::size_t memory_max_bytes = std::size_t{1} << 30;
  double heartbeat_s = 1.0;            // a worker silent for four of these is dead
  std::size_t connections_max = 4096;  // at most a quarter of this process's descriptors
  LogSink log;                         // called from the control thread; none: silence
  std::function<void()> on_drained;    // called from the control thread, once, after drain()
};

// How the server comes by its packet path; tests put their own in.
struct DataPlaneFactory {
  std::function<Result<std::unique_ptr<DataPlane>>(DataPlaneOptions, DataPlane::OnMismatch)> start = &DataPlane::start;
  std::function<std::size_t(const wire::Lease&)> memory_bytes = &DataPlane::memory_bytes;
};

class SwitchServer {
 public:
  static Result<std::unique_ptr<SwitchServer>> start(SwitchServerOptions options, const DataPlaneFactory& factory = {});
  ~SwitchServer();  // stops

  link::Address address() const;  // of the control port, as bound
  SwitchStats stats() const;      // from any thread
  // No new jobs from now on. on_drained() is called when no job runs any more, or after `longest`.
  void drain(Nanoseconds longest);
  // For jobs that begin from now on; running jobs keep theirs. Not "": a switch with a secret keeps having one.
  void renew_secret(const std::string& secret);
  // Tells the workers why, waits for them to hear it (bounded), joins the threads.
  void stop(const std::string& why = kStopped);

 private:
  class Control;

  explicit SwitchServer(std::unique_ptr<Control> control);

  std::unique_ptr<Control> control_;
};

}  // namespace netfold::switching
