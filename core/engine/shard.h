// One thread of the switch: a socket, the slots of every job that fall to it, and nothing shared on the packet path.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/switch_path.h"
#include "engine/wakeup.h"

namespace netfold::engine {

class Shard {
 public:
  Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
        DataPlane::OnMismatch on_mismatch);
  ~Shard();
  Shard(const Shard&) = delete;

  // Puts `job` (or nothing) in place `id`; returns when the thread has it. A removed job must live until then.
  void place(std::uint16_t id, ShardJob* job);

  const SwitchPath& path() const { return path_; }

 private:
  struct Placement {
    std::uint16_t id;
    ShardJob* job;
    std::promise<void> done;
  };

  void run(int core);
  void take_placements();

  std::uint16_t index_;
  SwitchPath path_;
  Wakeup wakeup_;
  std::atomic<bool> has_placements_{false}, stopping_{false};
  std::mutex placements_mutex_;  // never taken on the packet path while has_placements_ is false
  std::vector<Placement> placements_;
  std::thread thread_;
};

}  // namespace netfold::engine
