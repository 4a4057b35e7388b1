// MPI_Allreduce, taken over: LD_PRELOAD puts this library before the MPI library, whose own functions stay reachable
// under their profiling names, PMPI_*.
#include "allreduce.h"

#include "channel.h"
#include "job.h"

namespace netfold::mpi {
namespace {

static_assert(sizeof(float) == 4 && sizeof(int) == 4);
constexpr std::size_t kElementBytes = 4;

bool is_four_bytes(MPI_Datatype type) {  // what Fortran's are is the compiler's choice
  int size_bytes = 0;
  return PMPI_Type_size(type, &size_bytes) == MPI_SUCCESS && size_bytes == kElementBytes;
}

// Unsigned sums wrap to the same bits as signed ones.
bool find_type(MPI_Datatype type, nf_type& found) {
  if (type == MPI_DATATYPE_NULL) return false;
  if (type == MPI_FLOAT || ((type == MPI_REAL || type == MPI_REAL4) && is_four_bytes(type))) {
    found = NF_FLOAT32;
  } else if (type == MPI_INT || type == MPI_INT32_T || type == MPI_UNSIGNED || type == MPI_UINT32_T ||
             ((type == MPI_INTEGER || type == MPI_INTEGER4) && is_four_bytes(type))) {
    found = NF_INT32;
  } else {
    return false;
  }
  return true;
}

bool is_running() {
  int has_begun = 0, has_ended = 0;
  return PMPI_Initialized(&has_begun) == MPI_SUCCESS && has_begun != 0 && PMPI_Finalized(&has_ended) == MPI_SUCCESS &&
         has_ended == 0;
}

}  // namespace

int all_reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator) {
  const auto leave_to_mpi = [&] { return PMPI_Allreduce(in, out, count, type, operation, communicator); };
  if (communicator == MPI_COMM_NULL || !is_running()) return leave_to_mpi();
  Channel* const channel = Channel::of(communicator);
  if (channel == nullptr) return leave_to_mpi();
  auto& counts = Job::get().counts;
  nf_type folded = NF_FLOAT32;
  // Invalid arguments are left to MPI as well, which reports them best.
  if (operation != MPI_SUM || count <= 0 || out == nullptr || out == MPI_IN_PLACE || in == nullptr || in == out ||
      !find_type(type, folded)) {
    ++counts.left_kind;
    return leave_to_mpi();
  }
  const std::size_t size_bytes = static_cast<std::size_t>(count) * kElementBytes;
  if (!channel->takes(size_bytes)) {
    ++counts.left_small;
    return leave_to_mpi();
  }
  ++counts.taken;
  counts.taken_bytes += size_bytes;
  return channel->all_reduce(in == MPI_IN_PLACE ? out : in, out, static_cast<std::size_t>(count), folded);
}

}  // namespace netfold::mpi

extern "C" __attribute__((visibility("default"))) int MPI_Allreduce(const void* in, void* out, int count,
                                                                    MPI_Datatype type, MPI_Op operation,
                                                                    MPI_Comm communicator) {
  return netfold::mpi::all_reduce(in, out, count, type, operation, communicator);
}
