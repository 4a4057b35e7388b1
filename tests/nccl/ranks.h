// Ranks as processes of one program, each in a network namespace of its own if some are given. They share
// memory for the work of NCCL's bootstrap: to exchange handles, and to wait for each other.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "interface.h"

namespace netfold::nccl::testing {

constexpr int kRanksMax = 16;
constexpr double kPatienceS = 120;

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#define CHECK(condition)                                                                                       \
  do {                                                                                                         \
    if (!(condition)) {                                                                                        \
      std::printf("%s:%d: rank %d: %s\n", __FILE__, __LINE__, ::netfold::nccl::testing::own_rank, #condition); \
      std::fflush(stdout);                                                                                     \
      std::_Exit(1);                                                                                           \
    }                                                                                                          \
  } while (false)

inline int own_rank = -1;

struct Shared {
  std::atomic<int> arrived = 0;
  unsigned char handles[kRanksMax][kHandleBytes];
  std::uint64_t digests[kRanksMax];
};

class Ranks {
 public:
  Ranks(int world, std::vector<std::string> namespaces) : world_(world), namespaces_(std::move(namespaces)) {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
  }

  int world() const { return world_; }
  Shared& shared() const { return *shared_; }

  // Runs `body` in a process a rank. The number of ranks that ended with another status than 0.
  int run(const std::function<void(int)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < world_; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        own_rank = rank;
        if (!namespaces_.empty()) enter(namespaces_[static_cast<std::size_t>(rank)]);
        body(rank);
        std::fflush(stdout);
        std::_Exit(0);
      }
      children.push_back(child);
    }
    int failed = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      failed += status != 0 ? 1 : 0;
    }
    return failed;
  }

  // Until all ranks are here; each time of all together.
  void wait_for_all() {
    rounds_ += 1;
    shared_->arrived += 1;
    const double until = now_s() + kPatienceS;
    while (shared_->arrived < rounds_ * world_) {
      CHECK(now_s() < until);
      usleep(200);
    }
  }

 private:
  static void enter(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0 && setns(descriptor, CLONE_NEWNET) == 0);
    close(descriptor);
  }

  const int world_;
  const std::vector<std::string> namespaces_;
  Shared* shared_;
  int rounds_ = 0;
};

}  // namespace netfold::nccl::testing
