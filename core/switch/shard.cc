#include "switch/shard.h"

#include <fmt/core.h>

#include <array>

#include "base/thread.h"

namespace netfold::switching {
namespace {

constexpr int kBatchesAtOnce = 16;  // then stopping_, the mailbox and the link's deadline are looked at

}  // namespace

Shard::Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
             DataPlane::OnMismatch on_mismatch)
    : index_(index), path_(std::move(link), jobs_max, std::move(on_mismatch)) {
  thread_ = std::thread([this, core] { run(core); });
  clock_.emplace(thread_);
}

Shard::~Shard() {
  stopping_ = true;
  wakeup_.wake();
  thread_.join();
}

void Shard::place(std::uint16_t id, ShardJob* job) {
  mailbox_.run_there([&] { path_.place(id, job); }, [this] { wakeup_.wake(); });
}

std::string Shard::name() const {
  return fmt::format("nf-shard-{}", index_);
}

void Shard::run(int core) {
  set_up_thread(name(), core);
  while (!stopping_.load(std::memory_order_relaxed)) {
    const short events = path_.has_backlog() ? POLLIN | POLLOUT : POLLIN;
    std::array<pollfd, 2> descriptors{{{path_.link().descriptor(), events, 0}, {wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, path_.link().deadline());
    if (descriptors[1].revents != 0) wakeup_.clear();
    mailbox_.run_posted();
    for (int batch = 0; batch < kBatchesAtOnce && path_.pump(now()); ++batch) {
    }
  }
}

}  // namespace netfold::switching
