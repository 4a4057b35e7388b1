// How the all-reduces of one communicator go: by Netfold, or by MPI. A channel lives as an attribute of its
// communicator, so it comes with the first all-reduce and goes with MPI_Comm_free or MPI_Finalize.
//
// Ranks decide together, through MPI: first, at the first all-reduce of any kind, that their settings agree; then, at
// the first one that Netfold folds, that each of them could connect to all. If one cannot, MPI serves all of them, and
// that is said once. A rank's own decisions (such as whether it folds this type) are the same everywhere, because MPI
// demands the same type, operation and count of all ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>

#include "netfold.h"

namespace netfold::mpi {

class Channel {
 public:
  // The communicator's; null if MPI could not be asked.
  static Channel* of(MPI_Comm communicator);
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Whether it is one that Netfold has here: a switch of RoCE has only sums of floats and of four-byte integers.
  bool serves(nf_type type, nf_operation operation) const;
  // Whether all-reduces of so many bytes are Netfold's here. Connects where that has not been done: collective.
  bool takes(std::size_t size_bytes);
  // Blocks, and lets MPI's own traffic go on meanwhile. MPI_SUCCESS, or what the communicator's error handler made of
  // the error.
  int all_reduce(const void* in, void* out, std::size_t count, nf_type type, nf_operation operation);

  void close();

 private:
  enum class State { kMpi, kAgreed, kConnected, kWrong };

  explicit Channel(MPI_Comm communicator) : communicator_(communicator) {}
  void agree();
  void connect();
  std::string shared_secret() const;
  bool has_all_of_program() const;
  std::string roce_endpoint();
  std::string nic_place();
  bool all_could(const std::string& address, const std::string& error, std::string* addresses);
  int raise(const std::string& text) const;

  MPI_Comm communicator_;
  State state_ = State::kMpi;
  int rank_ = 0, world_ = 1;
  bool is_one_machine_ = false;
  std::string error_;  // of kWrong
  nf_group* group_ = nullptr;
  int roce_job_ = -1;        // added to the one that NETFOLD_ROCE names; -1: none
  bool drives_nic_ = false;  // this process's
};

}  // namespace netfold::mpi
