// One thread of the switch: a socket, the slots of every job that fall to it, and nothing shared on the packet path.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/thread_clock.h"
#include "base/wakeup.h"
#include "switch/mailbox.h"
#include "switch/switch_path.h"

namespace netfold::switching {

class Shard {
 public:
  Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
        DataPlane::OnMismatch on_mismatch);
  ~Shard();
  Shard(const Shard&) = delete;

  // Puts `job` (or nothing) in place `id`; returns when the thread has it. A removed job must live until then.
  void place(std::uint16_t id, ShardJob* job);

  const SwitchPath& path() const { return path_; }
  ThreadUse use() const { return {name(), clock_->seconds(), path_.link_stats()}; }  // from any thread

 private:
  void run(int core);
  std::string name() const;

  std::uint16_t index_;
  SwitchPath path_;
  Wakeup wakeup_;
  Mailbox mailbox_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::optional<ThreadClock> clock_;
};

}  // namespace netfold::switching
