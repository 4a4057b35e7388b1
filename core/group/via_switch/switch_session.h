// A rank's session through a switch: its data path (data_path.h) and its control conversation
// (membership/control_connection.h), and the errors that follow when one of them does not go on.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/session.h"
#include "group/via_switch/data_path.h"
#include "link/link.h"
#include "membership/control_connection.h"

namespace netfold::group {

using membership::ControlConnection;

struct SwitchSessionOptions {
  std::uint16_t rank = 0;
  std::uint32_t window = 0;            // chunks outstanding at most; 0: the switch's default of slots
  Nanoseconds timeout = 30 * kSecond;  // for an all-reduce to make progress
  Nanoseconds silence_max = kNever;    // after so long without an answer to its data packets, the switch is lost
  std::string switch_name;             // in errors: "host:port"
};

class SwitchSession final : public Session {
 public:
  // `control` has joined the job.
  SwitchSession(SwitchSessionOptions options, std::unique_ptr<link::Link> link,
                std::unique_ptr<ControlConnection> control);

  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override { return data_.take_finished(); }
  bool is_idle() const override { return data_.is_idle() && submitted_.empty(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  void set_timeout(Nanoseconds timeout) override { options_.timeout = timeout; }
  Nanoseconds deadline() const override;
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return control_->descriptor(); }
  nlohmann::json counters() const override;

  const wire::Lease& lease() const { return lease_; }
  const std::string& name() const { return options_.switch_name; }
  // Whose part the switch lacks, as it has said.
  std::optional<int> missing_rank() const;
  Nanoseconds last_progress() const { return data_.last_progress(); }
  std::uint64_t finished_chunks() const { return data_.finished_chunks(); }
  std::uint64_t returned_chunks() const { return data_.returned_chunks(); }
  // Of so many chunks that were submitted from the beginning on, few wait to be sent.
  bool wants_more(std::uint64_t submitted_chunks) const {
    return submitted_chunks <= data_.sent_chunks() + data_.window_chunks() / kUnsentPart + kUnsentLeast;
  }
  // For people who look at the switch: how it and the ranks share tensors.
  void say_shared(const control::SharedWork& shared) { control_->say_shared(shared); }

 private:
  // So much waits to be sent that the window never waits for more.
  static constexpr std::uint32_t kUnsentPart = 4, kUnsentLeast = 16;

  std::optional<Error> check_left_ranks();

  SwitchSessionOptions options_;
  std::unique_ptr<link::Link> link_;
  std::unique_ptr<ControlConnection> control_;
  const wire::Lease lease_;
  DataPath data_;
  std::deque<std::unique_ptr<Operation>> submitted_;  // since the last pump
  std::size_t left_ranks_ = 0;                        // how many were known to have left when last looked
  bool link_is_full_ = false, control_is_ready_ = true;
  bool is_over_ = false;  // the switch has said so, or has been told
};

}  // namespace netfold::group
