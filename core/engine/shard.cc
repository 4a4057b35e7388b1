#include "engine/shard.h"

#include <fmt/format.h>

#include <array>

#include "engine/thread_setup.h"

namespace netfold::engine {

Shard::Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
             DataPlane::OnMismatch on_mismatch)
    : index_(index), path_(std::move(link), jobs_max, std::move(on_mismatch)) {
  thread_ = std::thread([this, core] { run(core); });
}

Shard::~Shard() {
  stopping_ = true;
  wakeup_.wake();
  thread_.join();
}

void Shard::place(std::uint16_t id, ShardJob* job) {
  std::promise<void> done;
  std::future<void> taken = done.get_future();
  {
    const std::lock_guard lock(placements_mutex_);
    placements_.push_back({id, job, std::move(done)});
  }
  has_placements_.store(true, std::memory_order_release);
  wakeup_.wake();
  taken.wait();
}

void Shard::run(int core) {
  set_up_thread(fmt::format("nf-shard-{}", index_), core);
  while (!stopping_.load(std::memory_order_relaxed)) {
    const short events = path_.has_backlog() ? POLLIN | POLLOUT : POLLIN;
    std::array<pollfd, 2> descriptors{{{path_.link().descriptor(), events, 0}, {wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, path_.link().deadline());
    if (descriptors[1].revents != 0) wakeup_.clear();
    if (has_placements_.load(std::memory_order_acquire)) take_placements();
    path_.pump();
  }
}

void Shard::take_placements() {
  const std::lock_guard lock(placements_mutex_);
  has_placements_.store(false, std::memory_order_relaxed);
  for (Placement& placement : placements_) {
    path_.place(placement.id, placement.job);
    placement.done.set_value();
  }
  placements_.clear();
}

}  // namespace netfold::engine
