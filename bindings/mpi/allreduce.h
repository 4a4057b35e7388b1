// MPI_Allreduce as Netfold does it; whatever it does not fold is passed on to PMPI_Allreduce.
#pragma once

#include <mpi.h>

namespace netfold::mpi {

int all_reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm communicator);

}  // namespace netfold::mpi
