// Ranks whose all-reduces go through smart NICs: each rank has a Verilated one of its own, and its frames travel as UDP
// datagrams to the neighbours' in the ring. Everything else (other collectives, types and formats) a HostGroup does in
// software, as ever.
//
// A thread is the NIC's clock: it steps the model while there is work, and sleeps when there is none.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "engine/host_group.h"
#include "link/link.h"

namespace netfold::rtl {

struct GroupOptions {
  engine::HostGroupOptions host = {};  // its on_completion is this group's
  std::string faults = {};             // of the datagrams, as link::parse_faults
};

class Group final : public engine::Engine {
 public:
  static Result<std::unique_ptr<Group>> open(GroupOptions options);
  ~Group() override;  // close()

  const std::string& address() const { return host_->address(); }
  void set_physical_order(std::vector<int> order) { host_->set_physical_order(std::move(order)); }
  // As HostGroup's; then the ranks tell each other where their NICs' datagrams go.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

  std::optional<engine::Completion> wait(Ticket ticket, Nanoseconds timeout) override;
  std::optional<engine::Completion> next_completion(Nanoseconds timeout) override { return completions_.next(timeout); }
  void close(std::optional<Error> error = std::nullopt) override;
  // The host group's, and of the NIC: nic_cycles (in which requests were on their way), nic_wall_s that these took
  // here, nic_cycles_per_s, nic_time_200_mhz_s, nic_requests.
  nlohmann::json counters() const override;

 private:
  Result<Ticket> hand_over(const engine::AllReduce& request, const engine::CollectiveOptions& options,
                           bool is_awaited) override;

  // One all-reduce: its sums are kept beside until all of it is done, so that a failed one leaves the tensor as it was.
  struct Work {
    Ticket ticket;
    engine::AllReduce request;
    std::vector<float> sums;
    std::size_t posted = 0, ended = 0;  // slices
    std::size_t slices() const;
  };

  explicit Group(GroupOptions options);
  bool serves(const engine::AllReduce& request, const engine::CollectiveOptions& options) const;
  Result<void> meet(const std::function<bool()>& keep_going);
  void run();
  bool turn(unsigned cycles);
  void exchange(std::vector<Frame>& leaving);
  void take_submissions();
  void post();
  void take_ended();
  void finish(Work& work);
  void check();
  void fail(const Error& error);
  void rest();
  bool link_is_idle();

  GroupOptions options_;
  std::unique_ptr<engine::HostGroup> host_;
  std::unique_ptr<link::Link> link_;
  std::vector<link::Address> peers_;  // by rank
  engine::Wakeup wakeup_;

  // Of the thread.
  Device device_;
  std::optional<bool> is_bfp_;  // how the ring was set up, once it is
  std::deque<Work> works_;
  std::uint16_t next_tag_ = 0;
  std::uint64_t quiet_cycles_ = 0;  // without a frame either way
  std::uint64_t host_beats_ = 0;    // at the last look
  Nanoseconds last_progress_ = 0;

  mutable std::mutex mutex_;
  std::deque<Work> submitted_;
  std::optional<bool> agreed_bfp_;
  Ticket last_ticket_ = 0;
  std::optional<Error> failure_;
  std::uint64_t nic_cycles_ = 0, nic_requests_ = 0;
  Nanoseconds nic_wall_ = 0;
  std::atomic<bool> is_closing_ = false;

  engine::Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::rtl
