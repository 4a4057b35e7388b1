// A worker's side of the control conversation, as a state machine: lines and time go in, bytes to send come out. It
// does no I/O and reads no clock.
//
//   connecting --hello--> (searching --mtu-->) waiting --admitted--> admitted
//        \_________________________________________\______________________\____> failed (for good, with one Error)
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "wire/control/messages.h"
#include "wire/control/proofs.h"
#include "wire/lease.h"

namespace netfold::membership {

struct WorkerRequest {
  std::string switch_name;  // how errors call it: "host:port"
  control::Join join;       // without proof: that answers the switch's greeting
  std::optional<control::Secret> secret;
  bool searches_path = false;  // the owner finds the MTU where the switch helps, between its hello and the join
  bool require_auth = false;   // refuse a switch that does not prove the secret and tag the packets
  std::optional<control::Ranks> ranks = std::nullopt;  // of a switch that joins the switch above it
};

class WorkerSide {
 public:
  enum class State { kConnecting, kSearching, kWaiting, kAdmitted, kFailed };

  static constexpr int kHeartbeatsMissedMax = 4;

  WorkerSide(WorkerRequest request, Nanoseconds now);

  void on_line(std::string_view line, Nanoseconds now);
  void on_time(Nanoseconds now);
  void on_mtu(std::uint32_t mtu);         // of a worker that is searching, as a join says it
  void on_close(const std::string& why);  // the connection ended or broke
  void leave(const std::optional<Error>& error);
  // Of a switch that joins the switch above it: the ranks below it are others now; one of them left.
  void say_ranks(const control::Ranks& ranks);
  void say_left(std::uint16_t rank);
  // The switch hears of it with the next heartbeat.
  void say_shared(const control::SharedWork& shared) { shared_ = shared; }

  // What the switch has said about the job's share of its link, if it has since this was asked last.
  std::optional<control::LinkShare> take_link_share() { return std::exchange(link_share_, std::nullopt); }
  // True once each time that the switch says so: the other ranks wait for this one.
  bool take_is_late() { return std::exchange(is_late_, false); }

  State state() const { return state_; }
  const control::Hello& hello() const { return hello_; }  // after kConnecting
  const Error& error() const { return *error_; }          // state kFailed
  double retry_s() const { return retry_s_; }             // state kFailed: joining anew may help within this time
  const wire::Lease& lease() const { return lease_; }     // state kAdmitted, and after it
  const std::vector<std::uint16_t>& udp_ports() const { return udp_ports_; }
  std::optional<IpAddress> data_ip() const { return data_ip_; }        // where data packets go, if not to the switch
  const std::set<std::uint16_t>& left_ranks() const { return left_; }  // they left cleanly and fold no more
  bool knows_who_is_here() const { return !present_.empty(); }         // while waiting: the switch has answered
  std::vector<std::uint16_t> missing_ranks() const;                    // then
  const std::vector<std::uint16_t>& present_ranks() const { return present_; }
  const std::string& above() const { return above_; }  // of the switch: the one that it waits for; "": none

  Nanoseconds deadline() const;  // when on_time() wants to be called next
  std::string take_output();     // bytes to send

 private:
  void handle(const control::Hello& hello, Nanoseconds now);
  void join();
  void handle(const control::Waiting& waiting);
  void handle(const control::Admitted& admitted);
  void handle(const control::Refused& refused);
  void handle(const control::Failed& failed);
  void fail_with(ErrorCode code, std::string message, int rank = kNoRank);
  bool in_job() const { return state_ == State::kWaiting || state_ == State::kAdmitted; }

  WorkerRequest request_;
  State state_ = State::kConnecting;
  std::optional<Error> error_;
  double retry_s_ = 0;
  control::Hello hello_;
  std::vector<std::uint16_t> present_;
  wire::Lease lease_;
  std::vector<std::uint16_t> udp_ports_;
  std::optional<IpAddress> data_ip_;
  std::set<std::uint16_t> left_;
  std::string above_;
  std::optional<control::SharedWork> shared_;
  std::optional<control::LinkShare> link_share_;
  bool is_late_ = false;
  Nanoseconds heartbeat_ = kSecond;
  Nanoseconds next_tick_;
  int missed_ = 0;
  std::string output_;
};

}  // namespace netfold::membership
