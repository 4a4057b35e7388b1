#include "job.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "channel.h"

namespace netfold::mpi {

Job& Job::get() {
  static Job* const job = new Job;  // never destroyed: MPI may call us back while the program exits
  return *job;
}

Job::Job() : settings_(read_settings()) {
  PMPI_Comm_dup(MPI_COMM_SELF, &probed_);
  int key = MPI_KEYVAL_INVALID;
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &finish, &key, nullptr);
  PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

void Job::add(Channel* channel) {
  const std::lock_guard lock(mutex_);
  channels_.insert(channel);
}

void Job::remove(Channel* channel) {
  const std::lock_guard lock(mutex_);
  channels_.erase(channel);
}

int Job::take_roce_job() {
  const std::lock_guard lock(mutex_);
  int number = 0;
  while (roce_jobs_.contains(number)) ++number;
  roce_jobs_.insert(number);
  return number;
}

void Job::give_back_roce_job(int number) {
  const std::lock_guard lock(mutex_);
  roce_jobs_.erase(number);
}

bool Job::take_nic() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(is_nic_taken_, true);
}

void Job::give_back_nic() {
  const std::lock_guard lock(mutex_);
  is_nic_taken_ = false;
}

void Job::let_mpi_proceed() const {
  int is_there = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, probed_, &is_there, MPI_STATUS_IGNORE);
}

int Job::finish(MPI_Comm, int, void*, void*) {
  Job& job = get();
  for (;;) {
    Channel* channel = nullptr;
    {
      const std::lock_guard lock(job.mutex_);
      if (job.channels_.empty()) break;
      channel = *job.channels_.begin();
    }
    channel->close();  // its communicator deletes it
  }
  PMPI_Comm_free(&job.probed_);
  job.report();
  return MPI_SUCCESS;
}

void Job::report() const {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0 || !settings_.is_talkative) return;
  tell(
      fmt::format("rank 0: took over {} all-reduces of {} bytes; left to MPI: {} of other types or operations, {} "
                  "smaller than {} bytes or on communicators that MPI serves",
                  counts.taken.load(), counts.taken_bytes.load(), counts.left_kind.load(), counts.left_small.load(),
                  settings_.min_bytes));
}

void tell(const std::string& text) {
  std::fputs(("netfold: " + text + "\n").c_str(), stderr);
}

}  // namespace netfold::mpi
