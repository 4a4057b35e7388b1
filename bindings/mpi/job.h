// The state of a process: the settings, the open channels, the counts, and the clean-up. MPI deletes the attributes of
// MPI_COMM_SELF first in MPI_Finalize. One of them is ours, and closes all channels.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "settings.h"

namespace netfold::mpi {

class Channel;

class Job {
 public:
  static Job& get();

  const Settings& settings() const { return settings_; }
  void add(Channel* channel);
  void remove(Channel* channel);

  // Moves messages of the program's own that need this process to move them.
  void let_mpi_proceed() const;

  // The lowest number that no channel has. A number that was given back is taken again, in a later epoch.
  int take_roce_job();
  void give_back_roce_job(int number);
  // This process's smart NIC, for one channel at a time. False: another channel has it.
  bool take_nic();
  void give_back_nic();

  // All-reduces so far, and their bytes.
  struct Counts {
    std::atomic<std::uint64_t> taken = 0, taken_bytes = 0;
    std::atomic<std::uint64_t> left_kind = 0;   // to MPI: types and operations that Netfold does not fold
    std::atomic<std::uint64_t> left_small = 0;  // to MPI: fewer bytes than NETFOLD_MPI_MIN_BYTES, or no group
  };
  Counts counts;

 private:
  Job();
  static int finish(MPI_Comm, int, void*, void*);
  void report() const;

  Settings settings_;
  MPI_Comm probed_ = MPI_COMM_NULL;  // only ours, without messages: to look for one makes MPI look at everything
  std::mutex mutex_;
  std::set<Channel*> channels_;
  std::set<int> roce_jobs_;
  bool is_nic_taken_ = false;
};

// One line on standard error.
void tell(const std::string& text);

}  // namespace netfold::mpi
