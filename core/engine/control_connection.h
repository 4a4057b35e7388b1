// A worker's connection to the switch: joins a job (blocking, bounded), then lives beside the data path and says when
// the job has failed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/control_socket.h"
#include "jobs/worker_side.h"
#include "link/link.h"
#include "wire/lease.h"

namespace netfold::engine {

struct JoinOptions {
  std::string switch_address;  // "host:port"
  std::string job;
  std::uint16_t world = 1;
  std::uint16_t rank = 0;     // jobs::kHostRank: the job's host
  std::string secret;         // "": none
  bool is_hosted = false;     // the job has a host: wait for it too
  bool require_auth = false;  // join only a switch that proves the secret and tags packets
  std::uint16_t udp_port = 0;
  std::uint32_t mtu = 1500;
  numbers::BfpShape bfp = {};
  std::uint32_t window = 0;          // chunks outstanding at most; 0: the switch's default of slots
  double timeout_s = 30;             // for all of joining, and for an all-reduce to make progress
  double connect_timeout_s = 30;     // of that, until a switch answers at the address
  std::function<bool()> keep_going;  // asked at least every 100 ms while joining; false gives up
};

class ControlConnection {
 public:
  // Tries again while the switch cannot be reached, so that workers may start before it. Errors: kInvalidArgument,
  // kSwitchFailed (unreachable), kTimeout (ranks that did not come), kRefused, kMismatch, kAuth, kSystem (interrupted).
  static Result<std::unique_ptr<ControlConnection>> join(const JoinOptions& options);
  ~ControlConnection();

  // For one thread, which polls descriptor() for reading (and writing, if so wanted) and calls pump() when it is ready
  // or deadline() has come. Once the job has failed, pump() returns its Error, each time.
  int descriptor() const { return socket_->descriptor(); }
  bool wants_to_write() const { return socket_->wants_to_write(); }
  Nanoseconds deadline() const { return side_.deadline(); }
  Result<void> pump(Nanoseconds now);

  // Says goodbye, with the error if there is one, and waits a moment (bounded) until the switch has heard it.
  void leave(const std::optional<Error>& error);

  const wire::Lease& lease() const { return side_.lease(); }
  std::vector<link::Address> shard_addresses() const;  // where the datagrams for shard t go
  // Ranks that have left cleanly: what they have not contributed to will never be folded.
  const std::set<std::uint16_t>& left_ranks() const { return side_.left_ranks(); }
  link::Address switch_address() const { return switch_address_; }

 private:
  ControlConnection(std::unique_ptr<ControlSocket> socket, jobs::WorkerRequest request, link::Address switch_address);

  class Joining;

  std::unique_ptr<ControlSocket> socket_;
  jobs::WorkerSide side_;
  link::Address switch_address_;
  bool lost_ = false;  // failed because the connection ended, not because the switch said so
};

}  // namespace netfold::engine
