// A worker's conversation with the switch, once it has joined a job (joining.h): it lives beside the data path and says
// when the job has failed. Pure: it is given a link and the time.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "link/control_link.h"
#include "link/link.h"
#include "membership/worker_side.h"
#include "wire/lease.h"

namespace netfold::membership {

class ControlConnection {
 public:
  ControlConnection(std::unique_ptr<link::ControlLink> link, WorkerSide side, link::Address switch_address);

  // To be called when descriptor() is ready or deadline() has come. Once the job has failed, it returns its Error, each
  // time.
  Result<void> pump(Nanoseconds now);
  int descriptor() const { return link_->descriptor(); }
  bool wants_to_write() const { return link_->wants_to_write(); }
  Nanoseconds deadline() const;

  // Says goodbye, with the error if there is one. To be called again, at deadline() or when descriptor() is ready,
  // until it returns true: the switch has heard it, or has had time enough.
  bool leave(const std::optional<Error>& error, Nanoseconds now);

  const WorkerSide& side() const { return side_; }
  void say_mtu(std::uint32_t mtu) {
    side_.on_mtu(mtu);
  }  // of a worker that is searching; it joins with the next pump()
  link::Address path_address() const { return {switch_address_.ip, side_.hello().path_port}; }  // port 0: none
  void say_shared(const control::SharedWork& shared) { side_.say_shared(shared); }
  std::optional<control::LinkShare> take_link_share() { return side_.take_link_share(); }
  bool take_is_late() { return side_.take_is_late(); }
  // Of a switch at the switch above it; they go out with the next pump().
  void say_ranks(const control::Ranks& ranks) { side_.say_ranks(ranks); }
  void say_left(std::uint16_t rank) { side_.say_left(rank); }
  const wire::Lease& lease() const { return side_.lease(); }
  std::vector<link::Address> shard_addresses() const;  // where the datagrams for shard t go
  // Ranks that have left cleanly: what they have not contributed to will never be folded.
  const std::set<std::uint16_t>& left_ranks() const { return side_.left_ranks(); }
  // The job failed because the connection ended, not because the switch said so.
  bool is_lost() const { return is_lost_; }

 private:
  std::unique_ptr<link::ControlLink> link_;
  WorkerSide side_;
  link::Address switch_address_;
  bool is_lost_ = false;
  Nanoseconds gives_up_at_ = kNever;  // of leaving, once that has begun
};

}  // namespace netfold::membership
