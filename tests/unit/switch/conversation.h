// A switch's job table and any number of workers, joined by perfect wires in memory, with time turned by hand. It
// checks the table at every step: which workers are admitted, which jobs are evicted, how much memory is granted.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "membership/worker_side.h"
#include "switch/jobs/job_table.h"

namespace netfold::switching {
using namespace membership;
using namespace control;

class Conversation {
 public:
  static constexpr Nanoseconds kStart = 1000 * kSecond;

  static SwitchRules plain_rules() {
    SwitchRules rules;
    rules.udp_ports = {5000, 5001};
    rules.memory_max_bytes = 1 << 30;
    rules.memory_bytes = [](const wire::Lease& lease) {
      return std::size_t{lease.slots} * lease.payload_bytes * (lease.world + 1u);
    };
    auto random = std::make_shared<Prng>(7);
    rules.random = [random](std::span<std::byte> bytes) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(random->next());
    };
    return rules;
  }

  static WorkerRequest worker(std::string job, std::uint16_t world, std::uint16_t rank) {
    WorkerRequest request;
    request.switch_name = "box:7171";
    request.join.job = std::move(job);
    request.join.world = world;
    request.join.rank = rank;
    request.join.udp_port = static_cast<std::uint16_t>(6000 + rank);
    request.join.nonce[0] = static_cast<std::byte>(rank);
    return request;
  }
  static WorkerRequest host(std::string job, std::uint16_t world) {
    WorkerRequest request = worker(std::move(job), world, kHostRank);
    request.join.udp_port = 5999;
    return request;
  }

  explicit Conversation(SwitchRules rules = plain_rules())
      : memory_max_bytes_(rules.memory_max_bytes), jobs_max_(rules.jobs_max), table_(std::move(rules)) {}

  // A worker that connects, and answers by itself from then on.
  ConnectionId join(WorkerRequest request, std::optional<std::uint32_t> source_ip = {}) {
    const ConnectionId id = next_id_++;
    open_.insert(id);
    workers_.emplace(id, WorkerSide(std::move(request), now_));
    table_.on_open(id, 0x0a000100u + static_cast<std::uint32_t>(id), now_, source_ip);
    settle();
    return id;
  }

  // A connection that says only what say() tells it to.
  ConnectionId open(std::uint32_t ip = 0x0a000001) {
    const ConnectionId id = next_id_++;
    open_.insert(id);
    table_.on_open(id, ip, now_);
    settle();
    return id;
  }

  void say(ConnectionId id, const std::string& line) {
    table_.on_line(id, line, now_);
    settle();
  }

  void say(ConnectionId id, const Message& message) {
    std::string line = emit(message);
    line.pop_back();
    say(id, line);
  }

  void cut(ConnectionId id) {  // the wire, or the worker's process, is gone
    workers_.erase(id);
    open_.erase(id);
    table_.on_close(id, "lost its connection");
    settle();
  }

  void leave(ConnectionId id, const std::optional<Error>& error = {}) {
    workers_.at(id).leave(error);
    settle();
  }

  void mute(ConnectionId id) { muted_.insert(id); }  // alive, but says nothing

  void pass(Nanoseconds duration) {
    const Nanoseconds end = now_ + duration;
    while (now_ < end) {
      Nanoseconds next = std::min(end, table_.deadline());
      for (const auto& [id, worker] : workers_) next = std::min(next, worker.deadline());
      now_ = std::max(next, now_ + 1);
      for (auto& [id, worker] : workers_) worker.on_time(now_);
      settle();
      table_.on_time(now_);
      settle();
    }
  }

  WorkerSide& worker(ConnectionId id) { return workers_.at(id); }
  WorkerSide::State state(ConnectionId id) { return workers_.at(id).state(); }
  bool admitted(ConnectionId id) { return state(id) == WorkerSide::State::kAdmitted; }
  bool is_open(ConnectionId id) const { return open_.contains(id); }
  JobTable& table() { return table_; }
  Nanoseconds now() const { return now_; }

  // The last message a silent connection was sent.
  Message last(ConnectionId id) const { return *control::parse(heard_.at(id)); }

  const std::vector<AdmitJob>& admissions() const { return admissions_; }
  const std::set<std::uint16_t>& running() const { return running_; }
  const std::vector<std::string>& log() const { return log_; }

  void settle() {
    bool busy = true;
    while (busy) {
      busy = collect();
      for (auto& [id, worker] : workers_) {
        const std::string bytes = worker.take_output();
        if (bytes.empty() || muted_.contains(id)) continue;
        busy = true;
        for_each_line(bytes, [&, connection = id](const std::string& line) { table_.on_line(connection, line, now_); });
      }
    }
    check();
  }

 private:
  template <class OnLine>
  static void for_each_line(const std::string& bytes, OnLine on_line) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = bytes.find('\n', at);
      ASSERT_NE(end, std::string::npos) << "half a line";
      on_line(bytes.substr(at, end - at));
      at = end + 1;
    }
  }

  bool collect() {
    auto actions = table_.take_actions();
    for (const Action& action : actions) {
      std::visit([this](const auto& what) { carry_out(what); }, action);
    }
    return !actions.empty();
  }

  void carry_out(const SendLine& send) {
    ASSERT_TRUE(open_.contains(send.connection)) << "spoke to a closed connection: " << send.line;
    for_each_line(send.line, [&](const std::string& line) {
      ASSERT_TRUE(control::parse(line)) << line;
      heard_[send.connection] = line;
      if (const auto found = workers_.find(send.connection); found != workers_.end()) found->second.on_line(line, now_);
    });
  }

  void carry_out(const CloseConnection& close) {
    ASSERT_TRUE(open_.erase(close.connection)) << "closed twice";
    if (const auto found = workers_.find(close.connection); found != workers_.end()) {
      found->second.on_close("closed its connection");
    }
  }

  void carry_out(const AdmitJob& admit) {
    ASSERT_TRUE(running_.insert(admit.lease.job).second) << "a job id twice at once";
    ASSERT_LT(admit.lease.job, jobs_max_);
    ASSERT_EQ(admit.workers.size(), admit.lease.world);
    ASSERT_TRUE(identities_.insert({admit.lease.job, admit.lease.epoch}).second) << "a (job, epoch) came again";
    admissions_.push_back(admit);
  }

  void carry_out(const EvictJob& evict) { ASSERT_EQ(running_.erase(evict.job), 1u) << "evicted what does not run"; }
  void carry_out(const LogLine& line) { log_.push_back(line.text); }
  void carry_out(const JoinAbove&) { FAIL() << "there is no switch above"; }
  void carry_out(const TellAbove&) { FAIL() << "there is no switch above"; }
  void carry_out(const LeaveAbove&) { FAIL() << "there is no switch above"; }

  void check() {
    const auto jobs = table_.jobs();
    std::set<std::uint16_t> running;
    std::set<std::string> forming;
    std::size_t memory = 0;
    for (const JobSummary& job : jobs) {
      memory += job.memory_bytes;
      EXPECT_FALSE(job.present.empty() && !job.has_host) << "a job of nobody";
      EXPECT_LE(job.present.size() + job.left.size(), job.world);
      if (job.running) {
        EXPECT_TRUE(running.insert(job.job_id).second);
        EXPECT_EQ(job.present.size() + job.left.size(), job.world) << "a running job accounts for every rank";
      } else {
        EXPECT_TRUE(forming.insert(job.name).second) << "two jobs of one name form";
        EXPECT_TRUE(job.present.size() < job.world || !job.has_host) << "a whole job does not wait";
      }
    }
    EXPECT_EQ(running, running_);
    EXPECT_EQ(memory, table_.memory_bytes());
    EXPECT_LE(memory, memory_max_bytes_);
    EXPECT_LE(jobs.size(), jobs_max_);
    EXPECT_EQ(table_.connections(), open_.size());
  }

  std::size_t memory_max_bytes_;
  std::uint16_t jobs_max_;
  JobTable table_;
  Nanoseconds now_ = kStart;
  ConnectionId next_id_ = 1;
  std::map<ConnectionId, WorkerSide> workers_;
  std::set<ConnectionId> open_, muted_;
  std::map<ConnectionId, std::string> heard_;
  std::vector<AdmitJob> admissions_;
  std::set<std::uint16_t> running_;
  std::set<std::pair<std::uint16_t, std::uint16_t>> identities_;
  std::vector<std::string> log_;
};

}  // namespace netfold::switching
