#include "seeds.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include <fmt/core.h>

#include "base/clock.h"

namespace netfold::vopr {
namespace {

constexpr int kProcessesMax = 64;
constexpr Nanoseconds kProgressPeriod = 10 * kSecond;
constexpr unsigned kLookMicroseconds = 20000;

// Shared by the processes: the next seed to take, the counts, and the seed that each process runs.
struct Progress {
  std::atomic<std::uint64_t> next = 0, done = 0, failed = 0;
  std::array<std::atomic<std::uint64_t>, kProcessesMax> current = {};
};

Progress* share_progress() {
  void* const memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("cannot share memory");
    std::exit(2);
  }
  return new (memory) Progress;
}

}  // namespace

SeedCounts run_seeds(const SeedRun& wanted, const std::function<std::string(std::uint64_t)>& run,
                     const std::function<void(std::uint64_t, const std::string&)>& on_failure) {
  Progress& progress = *share_progress();
  const int count = std::min(wanted.processes, kProcessesMax);
  std::vector<pid_t> children(static_cast<std::size_t>(count));
  const auto fork_child = [&](std::size_t index) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // not to outlive an interrupted run
    for (std::uint64_t n; (n = progress.next++) < wanted.seeds.size();) {
      if (wanted.stops_at_failure && progress.failed > 0) break;
      const std::uint64_t seed = wanted.seeds[n];
      progress.current[index] = seed;
      if (const std::string what = run(seed); !what.empty()) {
        ++progress.failed;
        on_failure(seed, what);
        std::fflush(stdout);
      }
      ++progress.done;
    }
    std::_Exit(0);
  };
  std::fflush(stdout);
  for (std::size_t index = 0; index < children.size(); ++index) children[index] = fork_child(index);

  Nanoseconds next_report = now() + kProgressPeriod;
  for (int running = count; running > 0;) {
    usleep(kLookMicroseconds);
    for (std::size_t index = 0; index < children.size(); ++index) {
      int status = 0;
      if (children[index] == 0 || waitpid(children[index], &status, WNOHANG) != children[index]) continue;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        children[index] = 0;
        --running;
        continue;
      }
      ++progress.failed;
      ++progress.done;
      on_failure(progress.current[index], WIFSIGNALED(status)
                                              ? fmt::format("crash: {}", strsignal(WTERMSIG(status)))
                                              : fmt::format("crash: exit code {}", WEXITSTATUS(status)));
      std::fflush(stdout);
      children[index] = fork_child(index);
    }
    if (now() < next_report) continue;
    next_report = now() + kProgressPeriod;
    fmt::print(stderr, "{} of {} done, {} failed\n", progress.done.load(), wanted.seeds.size(), progress.failed.load());
  }
  return {progress.done - progress.failed, progress.failed};
}

}  // namespace netfold::vopr
