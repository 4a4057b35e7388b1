// MPI_Allreduce by Netfold. All-reduces that it does not fold are passed on to PMPI_Allreduce.
#pragma once

#include <mpi.h>

namespace netfold::mpi {

int all_reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator);

}  // namespace netfold::mpi
