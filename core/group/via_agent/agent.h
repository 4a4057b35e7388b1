// The agent: a process that folds for the workers of its machine, as a smart NIC or a DPU does. It listens at a local
// socket and holds a session for each worker's group or job.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <thread>

#include "group/via_agent/served_worker.h"
#include "link/local_socket.h"

namespace netfold::group {

class Agent {
 public:
  // Errors as link::LocalListener's.
  static Result<std::unique_ptr<Agent>> start(const std::string& address);
  ~Agent();  // stop("was stopped")

  const std::string& address() const { return listener_.address(); }
  // Ends every session; its worker and the other ranks are told why, in words that follow "the agent".
  void stop(const std::string& why);

 private:
  explicit Agent(link::LocalListener listener);

  void run();
  Result<void> admit(const LocalSocket& socket) const;

  link::LocalListener listener_;
  const std::string name_;
  Wakeup wakeup_;
  std::mutex mutex_;
  bool is_stopping_ = false;                           // under mutex_
  std::list<std::unique_ptr<ServedWorker>> sessions_;  // of the thread, until it has ended
  std::thread thread_;
};

}  // namespace netfold::group
