// One worker's group or job in the agent: its engine, its memory, and what is said about them. A thread of its own
// serves it until the worker leaves or dies, or the agent is stopped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/wakeup.h"
#include "group/via_agent/local_socket.h"
#include "group/via_agent/relay.h"
#include "group/via_peers/peer_group.h"

namespace netfold::group {

class ServedWorker {
 public:
  // `agent`: what errors call the agent. `on_end` is called by the session's thread, last of all.
  ServedWorker(LocalSocket socket, std::string agent, std::function<void()> on_end);
  ~ServedWorker();  // stop()s, and waits until it has

  // Tells the worker and the other ranks why; returns at once.
  void stop(const std::string& why);
  bool is_over() const { return is_over_; }

 private:
  void run();
  Result<void> open();
  Result<void> open_engine(const nlohmann::json& opening);
  Result<nlohmann::json> make_engine(const std::string& kind, const nlohmann::json& options);
  void serve();
  bool work();  // true if anything moved
  void sleep();
  bool look();  // false: it is over
  bool handle(const nlohmann::json& message);
  nlohmann::json connect(const nlohmann::json& message);
  void fail(const Error& error);
  bool goes_on() const;  // while something blocks
  std::optional<std::string> stop_reason() const;
  nlohmann::json counters() const;

  LocalSocket socket_;
  const std::string agent_;
  const std::function<void()> on_end_;
  Wakeup stop_bell_;
  mutable std::mutex mutex_;
  std::optional<std::string> stop_reason_;  // under mutex_
  std::atomic<bool> is_over_ = false;

  // Of the thread. A member needs only members above it: they end in the opposite order.
  Wakeup request_bell_, answer_bell_;  // the worker rings the first, we the second
  Wakeup engine_bell_;
  std::optional<WorkerMemory> memory_;
  std::optional<link::Mapping> channel_memory_;
  Channel* channel_ = nullptr;
  std::optional<UndoLog> log_;
  std::optional<Relay> relay_;  // after the engine has been closed
  std::unique_ptr<Group> engine_;
  PeerGroup* group_ = nullptr;  // the engine, if it is one
  int world_ = 1, rank_ = kNoRank;
  bool has_failed_ = false;
  Nanoseconds next_look_ = 0;

  std::thread thread_;
};

}  // namespace netfold::group
