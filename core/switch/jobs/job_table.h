// The switch's side of the control conversation, as a state machine: connections, lines and time go in, actions come
// out. It does no I/O and reads no clock.
//
// A job *forms* while its workers join and *runs* once all are there. At most one forming job has a name, and a running
// job keeps its name as long as none of its workers has left. So the next job of a name may begin to form while the
// last workers of the previous one are still leaving.
//
// In a tree of switches (PROTOCOL.md) a member may be a switch that stands for several ranks. A switch below another
// one joins that for its members (switch/uplinks.h), and admits them when it is admitted itself. A job whose workers
// are all here needs no switch above.
//
// A job may have a *host*, which folds nothing but is told when tensors are folded (PROTOCOL.md): The host joins while
// the job forms. The job waits for it if a worker says so, and continues without a host that is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "switch/aggregation/tree.h"
#include "switch/jobs/admission.h"
#include "wire/control/messages.h"
#include "wire/lease.h"

namespace netfold::switching {

using ConnectionId = std::uint64_t;

// Actions, to be carried out in their order.
struct SendLine {
  ConnectionId connection;
  std::string line;
};
struct CloseConnection {  // after what was sent has gone out; the table forgets it at once
  ConnectionId connection;
};
struct Endpoint {
  IpAddress ip;
  std::uint16_t port = 0;
};
struct AdmitJob {
  wire::Lease lease;
  std::vector<Endpoint> workers;  // by rank, or by place in a tree
  std::optional<Endpoint> host;
  Tree tree = {};
};
struct EvictJob {
  std::uint16_t job;
};
enum class LogLevel { kInfo, kWarning };
enum class LogSubject { kStranger, kJob };  // strangers must not use up the lines about jobs
struct LogLine {
  LogLevel level;
  std::string text;
  LogSubject subject;
  std::string job = {};  // its name; "": of no job
};
using LogSink = std::function<void(const LogLine&)>;
// To the switch above, about the job of this key.
using JobKey = std::uint64_t;  // never used again, unlike job ids
struct JoinAbove {
  JobKey key;
  control::Join join;  // without the ports and the nonce
  control::Ranks ranks;
};
struct TellAbove {
  JobKey key;
  std::variant<control::Ranks, control::Left, control::SharedWork> what;
};
struct LeaveAbove {
  JobKey key;
  std::optional<Error> error;
};
using Action = std::variant<SendLine, CloseConnection, AdmitJob, EvictJob, LogLine, JoinAbove, TellAbove, LeaveAbove>;

struct JobSummary {
  std::string name;
  bool running = false;
  std::uint16_t job_id = 0, epoch = 0;  // of a running job
  std::uint16_t world = 0;
  std::vector<std::uint16_t> present, left;
  bool has_host = false;
  std::uint32_t slots = 0;
  std::uint16_t payload_bytes = 0;
  std::size_t memory_bytes = 0;
  Nanoseconds since = 0;  // when it began to form, or to run
  std::optional<control::SharedWork> shared = std::nullopt;
  std::vector<Contributor> contributors = {};  // of a running job in a tree, by place
  bool has_above = false;                      // it joins, or has joined, the switch above
};

struct RunningJob {
  std::uint16_t number;
  std::string interface;     // of this machine, that leads to all its workers; "": several, or not known
  std::size_t header_bytes;  // of IP and UDP, in each of its packets
};

struct TableCounters {
  std::uint64_t joins_refused = 0, jobs_admitted = 0, jobs_finished = 0, jobs_failed = 0;
};

class JobTable {
 public:
  explicit JobTable(SwitchRules rules);

  // `source_ip`: of the packets that this machine sends to the peer, if not the address that the peer has reached.
  // `interface`: the one of this machine that carries them, if it is known.
  void on_open(ConnectionId id, const IpAddress& ip, Nanoseconds now, const std::optional<IpAddress>& source_ip = {},
               const std::string& interface = {});
  void on_line(ConnectionId id, std::string_view line, Nanoseconds now);
  void on_violation(ConnectionId id, const std::string& what);  // it sent what no worker sends
  void on_close(ConnectionId id, const std::string& why);       // the peer closed, or the connection broke
  void on_mismatch(std::uint16_t job, std::uint16_t epoch, int rank, const std::string& what);
  void on_no_memory(std::uint16_t job, std::uint16_t epoch);  // the machine has less than the rules allow
  void on_time(Nanoseconds now);
  // How a running job shares a link, here or above: its workers are told.
  void on_link_share(JobKey key, const control::LinkShare& share);
  // The job waits for the contributor in this place, which is told if it is a worker: a switch finds that out itself.
  void on_late_rank(JobKey key, std::uint16_t place);
  // No job begins from now on, and those that form end. Running jobs go on until they end, or until the time `by`.
  void on_drain(Nanoseconds by);
  // For joins from now on. Jobs that form end: half of their workers have proven that they know the old one.
  void on_new_secret(std::optional<control::Secret> secret);
  void on_stop(const std::string& why);  // tells every worker that the switch stops, and why

  // Called when the switch above says something about a job.
  void on_present_above(JobKey key, const std::vector<std::uint16_t>& ranks);  // who has joined, anywhere
  void on_admitted_above(JobKey key, const wire::Lease& lease, std::vector<link::Address> shards, Nanoseconds now);
  void on_left_above(JobKey key, std::uint16_t rank);
  void on_lost_above(JobKey key, const Error& error);  // it refused, or failed, or is gone

  Nanoseconds deadline() const;  // when on_time() wants to be called next
  std::vector<Action> take_actions();

  std::vector<JobSummary> jobs() const;
  std::map<JobKey, RunningJob> running_jobs() const;
  bool has_running_jobs() const;
  bool is_draining() const { return is_draining_; }
  // No job is left, or the time is over.
  bool is_drained() const { return is_draining_ && (jobs_.empty() || is_drain_over_); }
  const TableCounters& counters() const { return counters_; }
  std::size_t memory_bytes() const;
  std::size_t connections() const { return connections_.size(); }
  bool has_joined(ConnectionId id) const;
  // Of a connection from this address the hello had this nonce.
  bool has_greeted(const control::Nonce& nonce, const IpAddress& ip) const;

 private:
  struct Connection {
    IpAddress ip;
    std::optional<IpAddress> source_ip;
    std::string interface;
    Nanoseconds join_by = 0;
    control::Nonce nonce = {};
    JobKey job = 0;                                       // 0: not joined
    std::uint16_t rank = 0;                               // kHostRank: the host; of a switch, the lowest of its ranks
    int missed = 0;                                       // heartbeat intervals without a line
    std::optional<control::Join> pending = std::nullopt;  // of a switch that has not said yet which ranks it has

    int rank_to_tell() const { return rank == control::kHostRank ? kNoRank : rank; }
  };
  struct Member {
    ConnectionId connection = 0;
    Endpoint endpoint;
    control::Join join;
    Nanoseconds wait_until = 0;
    std::vector<std::uint16_t> ranks;         // ascending; of a worker its own
    std::optional<control::Ranks> said = {};  // of a switch

    bool is_switch() const { return join.below.has_value(); }
    bool has(std::uint16_t rank) const { return std::binary_search(ranks.begin(), ranks.end(), rank); }
    Contributor contributor() const;
    std::string name() const;  // of a switch, with its ranks
  };
  struct Job {
    std::string name;
    bool running = false;
    std::uint16_t world = 1;                  // ranks
    std::map<std::uint16_t, Member> members;  // workers and switches, by their (lowest) rank
    std::optional<Member> host;
    std::set<std::uint16_t> left;
    bool presence_changed = false;  // tell the waiting workers at the next tick
    wire::Lease lease;              // of a forming job: what is reserved for it
    std::size_t memory_bytes = 0;
    Nanoseconds since = 0;
    std::optional<control::SharedWork> shared = std::nullopt;  // as rank 0 said last

    bool has_above = false;                         // it joins, or has joined, the switch above
    std::vector<std::uint16_t> present_above = {};  // while it forms: as the switch above said last

    bool is_whole() const;                       // all are here
    std::vector<std::uint16_t> present() const;  // ranks that are here
    const Member* member_of(std::uint16_t rank) const;
    bool has_switches() const;
    const Member& any() const { return members.empty() ? *host : members.begin()->second; }
    // Workers by rank, then the host.
    template <class Do>
    void for_each_member(Do act) const {
      for (const auto& [rank, member] : members) act(member);
      if (host) act(*host);
    }
  };

  void handle_join(ConnectionId id, const control::Join& join, Nanoseconds now);
  void settle_forming(JobKey place, ConnectionId joined, Nanoseconds now);
  void take_in(ConnectionId id, const control::Join& join, const std::optional<control::Ranks>& said, Nanoseconds now);
  std::optional<control::Refused> find_place(const control::Join& join, const std::vector<std::uint16_t>& ranks,
                                             Nanoseconds now, JobKey& place);
  std::optional<control::Refused> check_ranks(const Job& job, const std::vector<std::uint16_t>& ranks,
                                              const Member* of) const;
  std::optional<control::Refused> check_running_jobs(const control::Join& join) const;
  std::optional<control::Refused> begin_job(const control::Join& join, Nanoseconds now, JobKey& place);
  void admit(JobKey key, Nanoseconds now);
  void handle_leave(ConnectionId id, const control::Leave& leave);
  void run(JobKey key, wire::Lease lease, std::optional<Above> above, Nanoseconds now);
  void leave_cleanly(JobKey key, std::uint16_t rank);
  void end_without_workers(JobKey key);
  void lose_member(const Connection& connection, const std::string& why, int blamed);  // already closed
  void lose_below(const Connection& connection, const control::Leave& leave);
  void fail_job(JobKey key, const Error& error);
  void end_forming(const std::string& why);
  void fail_running(std::uint16_t job_id, std::uint16_t epoch, const std::function<Error(const Job&)>& why);
  void dissolve(JobKey key, Nanoseconds now);
  void tick();

  // Trees: job_table_tree.cc.
  void handle_ranks(ConnectionId id, const control::Ranks& ranks, Nanoseconds now);
  void handle_left(ConnectionId id, std::uint16_t rank);
  void turn_away(ConnectionId id, const control::Refused& refusal);
  std::optional<control::Refused> plan_again(Job& job);
  void join_above(JobKey key, Nanoseconds now);
  void tell_above(JobKey key);
  void leave_above(JobKey key, const std::optional<Error>& error);
  void change_rank(ConnectionId id, std::uint16_t rank);
  std::optional<Error> check_order(const Job& job) const;
  std::vector<const control::Join*> joins_of(const Job& job) const;
  GrantBounds bounds_of(const Job& job, std::uint16_t contributors) const;
  control::Ranks ranks_of(const Job& job) const;
  void say_left(JobKey key, std::uint16_t rank, const Member* by);

  void refuse(ConnectionId id, const control::Refused& refused);
  void send(ConnectionId id, const control::Message& message);
  void close(ConnectionId id);
  void log(LogLevel level, std::string text, const std::string& job, LogSubject subject = LogSubject::kJob);
  void send_presence(const Job& job, ConnectionId only);
  std::uint16_t free_job_id() const;
  double retry_s_if_a_job_is_ending() const;
  std::string describe(const Connection& connection) const;

  SwitchRules rules_;
  std::map<ConnectionId, Connection> connections_;
  std::map<JobKey, Job> jobs_;
  JobKey next_key_ = 1;
  std::uint16_t next_epoch_;
  Nanoseconds next_tick_ = 0;
  bool is_draining_ = false, is_drain_over_ = false;
  Nanoseconds drain_by_ = kNever;
  TableCounters counters_;
  std::vector<Action> actions_;
};

}  // namespace netfold::switching
