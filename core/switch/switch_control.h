// The switch's control side over links that it is given: the connections of its workers, the job table that listens to
// them, and the data plane that carries out what the table decides. No socket, thread or clock: the server
// (switch_server.h) drives it in real time, the simulated cluster (core/testing) in virtual time.
//
// One round: serve() what is ready, accept() what has connected, on_time(), then settle().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "link/control_link.h"
#include "link/interface_traffic.h"
#include "switch/data_plane.h"
#include "switch/fair_shares.h"
#include "switch/jobs/job_table.h"
#include "switch/late_ranks.h"
#include "switch/uplinks.h"

namespace netfold::switching {

constexpr const char* kStopped = "the switch was stopped";

struct SwitchControlOptions {
  std::size_t connections_max = 4096;
  std::function<void(const LogLine&, Nanoseconds)> log = {};  // none: silence
  UplinkOptions uplink = {};
  // The bytes that an interface of this machine has carried, of all its programs; none: not known.
  std::function<std::optional<link::InterfaceTraffic>(const std::string& interface)> traffic_of = {};
};

class SwitchControl {
 public:
  struct Peer {
    std::unique_ptr<link::ControlLink> link;
    bool is_closing = false;  // the table has forgotten it; what it is sent still goes out
    bool is_shut = false;
    Nanoseconds close_by = kNever;
  };

  // `data_plane` must outlive this.
  SwitchControl(SwitchRules rules, DataPlane& data_plane, SwitchControlOptions options);

  // `source_ip`, `interface`: as JobTable::on_open's.
  void accept(std::unique_ptr<link::ControlLink> link, const IpAddress& ip, Nanoseconds now,
              const std::optional<IpAddress>& source_ip = {}, const std::string& interface = {});
  // Strangers must not keep workers out: the oldest connection that has not joined goes. False: all have joined.
  bool make_room();
  // Something has come over this connection, or it takes bytes again.
  void serve(ConnectionId id, Nanoseconds now);
  // The workers of an epoch disagree about what they fold.
  void on_mismatch(std::uint16_t job, std::uint16_t epoch, int rank, const std::string& what);
  void on_time(Nanoseconds now);
  // As JobTable's.
  void drain(Nanoseconds by) { table_.on_drain(by); }
  void renew_secret(control::Secret secret) { table_.on_new_secret(std::move(secret)); }
  // Tells every worker that the switch stops, and why. After this nothing is accepted, and on_time() is not called.
  void stop(const std::string& why = kStopped);
  // Carries out what the table has decided, and closes connections that are done.
  void settle(Nanoseconds now);

  Nanoseconds deadline() const;  // when the next round is due though nothing came
  const std::map<ConnectionId, Peer>& peers() const { return peers_; }
  // The switch above. Its owner opens the connections, and calls settle() when something has come over one.
  Uplinks& uplinks() { return uplinks_; }
  const Uplinks& uplinks() const { return uplinks_; }
  // After stop(): all have heard it.
  bool is_done() const { return peers_.empty() && uplinks_.is_idle(); }
  const JobTable& table() const { return table_; }
  // Whether this datagram at the path port is a probe of one who is connected: it is sent back as it is.
  bool sends_back(const link::Incoming& datagram) const;

 private:
  void lose(ConnectionId id, Peer& peer, const std::string& why, Nanoseconds now);
  void act(Nanoseconds now);
  void carry_out(const SendLine& send, Nanoseconds now);
  void carry_out(const CloseConnection& close, Nanoseconds now);
  void carry_out(const AdmitJob& admit, Nanoseconds now);
  void carry_out(const EvictJob& evict, Nanoseconds now);
  void carry_out(const LogLine& line, Nanoseconds now);
  void carry_out(const JoinAbove& join, Nanoseconds now) { uplinks_.join(join, now); }
  void carry_out(const TellAbove& tell, Nanoseconds) { uplinks_.tell(tell); }
  void carry_out(const LeaveAbove& leave, Nanoseconds now) { uplinks_.leave(leave, now); }
  bool hear_above(Nanoseconds now);
  void look_at_jobs(Nanoseconds now);
  std::map<std::string, FairShares::Interface> traffic_of_the_only_interface(
      const std::map<JobKey, RunningJob>& running) const;
  void close_done(Nanoseconds now);

  SwitchControlOptions options_;
  DataPlane& data_plane_;
  JobTable table_;
  Uplinks uplinks_;
  std::map<ConnectionId, Peer> peers_;
  ConnectionId next_id_ = 1;
  bool is_stopping_ = false;
  FairShares shares_;
  LateRanks late_;
  Nanoseconds next_look_ = 0;  // at the jobs
};

}  // namespace netfold::switching
