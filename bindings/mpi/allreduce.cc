// MPI_Allreduce, taken over: LD_PRELOAD puts this library before the MPI library, whose own functions stay reachable
// under their profiling names, PMPI_*.
#include "allreduce.h"

#include <array>

#include "channel.h"
#include "job.h"

namespace netfold::mpi {
namespace {

// A type of MPI and the one of Netfold that it must be as large as: Fortran's types, and C's long, have the size that
// the compiler gives them.
struct Type {
  MPI_Datatype mpi;
  nf_type netfold;
  int size_bytes;
};

const Type* find_type(MPI_Datatype type) {
  static const std::array kTypes = {
      Type{MPI_FLOAT, NF_FLOAT32, 4},
      Type{MPI_REAL, NF_FLOAT32, 4},
      Type{MPI_REAL4, NF_FLOAT32, 4},
      Type{MPI_DOUBLE, NF_FLOAT64, 8},
      Type{MPI_DOUBLE_PRECISION, NF_FLOAT64, 8},
      Type{MPI_REAL8, NF_FLOAT64, 8},
      Type{MPI_INT, NF_INT32, 4},
      Type{MPI_INT32_T, NF_INT32, 4},
      Type{MPI_INTEGER, NF_INT32, 4},
      Type{MPI_INTEGER4, NF_INT32, 4},
      Type{MPI_UNSIGNED, NF_UINT32, 4},
      Type{MPI_UINT32_T, NF_UINT32, 4},
      Type{MPI_LONG, NF_INT64, 8},
      Type{MPI_LONG_LONG, NF_INT64, 8},
      Type{MPI_INT64_T, NF_INT64, 8},
      Type{MPI_INTEGER8, NF_INT64, 8},
      Type{MPI_UNSIGNED_LONG, NF_UINT64, 8},
      Type{MPI_UNSIGNED_LONG_LONG, NF_UINT64, 8},
      Type{MPI_UINT64_T, NF_UINT64, 8},
      Type{MPI_SHORT, NF_INT16, 2},
      Type{MPI_INT16_T, NF_INT16, 2},
      Type{MPI_INTEGER2, NF_INT16, 2},
      Type{MPI_UNSIGNED_SHORT, NF_UINT16, 2},
      Type{MPI_UINT16_T, NF_UINT16, 2},
      Type{MPI_SIGNED_CHAR, NF_INT8, 1},
      Type{MPI_INT8_T, NF_INT8, 1},
      Type{MPI_INTEGER1, NF_INT8, 1},
      Type{MPI_UNSIGNED_CHAR, NF_UINT8, 1},
      Type{MPI_UINT8_T, NF_UINT8, 1},
  };
  if (type == MPI_DATATYPE_NULL) return nullptr;
  for (const Type& known : kTypes) {
    if (known.mpi != type) continue;
    int size_bytes = 0;
    const bool is_known = PMPI_Type_size(type, &size_bytes) == MPI_SUCCESS && size_bytes == known.size_bytes;
    return is_known ? &known : nullptr;
  }
  return nullptr;
}

bool is_integer(nf_type type) {
  return type != NF_FLOAT32 && type != NF_FLOAT64;
}

bool find_operation(MPI_Op operation, nf_type type, nf_operation& found) {
  if (operation == MPI_SUM) return found = NF_SUM, true;
  if (operation == MPI_PROD) return found = NF_PRODUCT, true;
  if (operation == MPI_MIN) return found = NF_MIN, true;
  if (operation == MPI_MAX) return found = NF_MAX, true;
  if (!is_integer(type)) return false;
  if (operation == MPI_BAND) return found = NF_BIT_AND, true;
  if (operation == MPI_BOR) return found = NF_BIT_OR, true;
  if (operation == MPI_BXOR) return found = NF_BIT_XOR, true;
  return false;
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
  const Type* const known = find_type(type);
  nf_operation wanted = NF_SUM;
  // Invalid arguments are left to MPI as well, which reports them best.
  if (count <= 0 || out == nullptr || out == MPI_IN_PLACE || in == nullptr || in == out || known == nullptr ||
      !find_operation(operation, known->netfold, wanted)) {
    ++counts.left_kind;
    return leave_to_mpi();
  }
  // Unsigned sums wrap to the same bits as signed ones, which have faster loops.
  const nf_type folded = wanted == NF_SUM && known->netfold == NF_UINT32 ? NF_INT32 : known->netfold;
  if (!channel->serves(folded, wanted)) {
    ++counts.left_kind;
    return leave_to_mpi();
  }
  const std::size_t size_bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(known->size_bytes);
  if (!channel->takes(size_bytes)) {
    ++counts.left_small;
    return leave_to_mpi();
  }
  ++counts.taken;
  counts.taken_bytes += size_bytes;
  return channel->all_reduce(in == MPI_IN_PLACE ? out : in, out, static_cast<std::size_t>(count), folded, wanted);
}

}  // namespace netfold::mpi

extern "C" __attribute__((visibility("default"))) int MPI_Allreduce(const void* in, void* out, int count,
                                                                    MPI_Datatype type, MPI_Op operation,
                                                                    MPI_Comm communicator) {
  return netfold::mpi::all_reduce(in, out, count, type, operation, communicator);
}
