// How a switch joins the switch above it, a job at a time: as a worker does (membership/), for all ranks below it. No
// socket, thread or clock: its owner opens the connections and tells the time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "link/control_link.h"
#include "membership/join_attempts.h"
#include "switch/jobs/job_table.h"

namespace netfold::switching {

struct UplinkOptions {
  std::string parent;          // "host:port"; "": there is no switch above
  link::Address address = {};  // the same
  std::string secret;          // of the switch above; "": none
  bool require_auth = false;   // it must tag packets too
  std::function<control::Nonce()> draw_nonce;
  // Of the way to it: the MTU as a join says it, and the largest packet that may pass (JoinOptions::path_bytes_max).
  std::function<std::uint32_t()> mtu;
  std::function<std::uint32_t()> path_bytes_max = {};  // none: the MTU is known
};

class Uplinks {
 public:
  // The job table must hear of these.
  struct Present {
    JobKey key;
    std::vector<std::uint16_t> ranks;
  };
  struct Admitted {
    JobKey key;
    wire::Lease lease;
    std::vector<link::Address> shards;
  };
  struct Left {
    JobKey key;
    std::uint16_t rank;
  };
  struct Lost {
    JobKey key;
    Error error;
  };
  struct Shared {  // how the job shares the link of the switch above
    JobKey key;
    control::LinkShare share;
  };
  using Event = std::variant<Present, Admitted, Left, Lost, Shared>;

  explicit Uplinks(UplinkOptions options) : options_(std::move(options)) {}

  void join(const JoinAbove& join, Nanoseconds now);
  void tell(const TellAbove& tell);
  void leave(const LeaveAbove& leave, Nanoseconds now);

  // Listens and speaks; to be called when something has come, after the calls above, and when deadline() has passed.
  std::vector<Event> pump(Nanoseconds now);
  Nanoseconds deadline() const;
  // Nothing is left to say to the switch above.
  bool is_idle() const { return uplinks_.empty() && goodbyes_.empty(); }

  // The jobs for which a connection is wanted now. The owner opens one for each, and says how that ended, unless
  // is_connecting() has ended by itself: then it gives up that connection.
  std::vector<JobKey> begin_attempts(Nanoseconds now);
  bool is_connecting(JobKey key) const;
  void on_connected(JobKey key, std::unique_ptr<link::ControlLink> link, Nanoseconds now);
  void on_unreachable(JobKey key, const std::string& why, Nanoseconds now);

  // Packets to send now, to find the MTU of the way; on_datagram() is told what comes to the socket that sends them.
  std::optional<membership::JoinAttempts::PathPacket> next_path_packet(Nanoseconds now);
  void on_datagram(std::span<const std::byte> bytes, Nanoseconds now);

  // Each connection, to be polled: act(descriptor, wants_to_write).
  void for_each_connection(const std::function<void(int, bool)>& act) const;
  const UplinkOptions& options() const { return options_; }

 private:
  struct Uplink {
    membership::JoinOptions options;
    std::unique_ptr<membership::JoinAttempts> attempts;         // until it is admitted
    std::unique_ptr<membership::ControlConnection> connection;  // from then on
    std::vector<std::uint16_t> present;
    std::set<std::uint16_t> left;
  };
  struct Goodbye {
    std::unique_ptr<membership::ControlConnection> connection;
    std::optional<Error> error;
  };

  bool pump(JobKey key, Uplink& uplink, Nanoseconds now, std::vector<Event>& events);

  UplinkOptions options_;
  std::map<JobKey, std::unique_ptr<Uplink>> uplinks_;  // attempts refer to their options
  std::vector<Goodbye> goodbyes_;
};

}  // namespace netfold::switching
