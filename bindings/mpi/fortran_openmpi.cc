// MPI_ALLREDUCE of Fortran programs, in Open MPI: mpif.h and `use mpi` call the first name, `use mpi_f08` the second.
// MPI_IN_PLACE and MPI_BOTTOM are addresses of their own there.
#include "allreduce.h"

extern "C" {

extern int mpi_fortran_in_place_, mpi_fortran_bottom_;

__attribute__((visibility("default"))) void mpi_allreduce_(char* in, char* out, MPI_Fint* count, MPI_Fint* type,
                                                           MPI_Fint* operation, MPI_Fint* communicator,
                                                           MPI_Fint* error) {
  const auto in_c = [](char* address) -> void* {
    if (address == reinterpret_cast<char*>(&mpi_fortran_in_place_)) return MPI_IN_PLACE;
    return address == reinterpret_cast<char*>(&mpi_fortran_bottom_) ? MPI_BOTTOM : address;
  };
  const int status = netfold::mpi::all_reduce(in_c(in), in_c(out), *count, PMPI_Type_f2c(*type),
                                              PMPI_Op_f2c(*operation), PMPI_Comm_f2c(*communicator));
  if (error != nullptr) *error = status;
}

__attribute__((visibility("default"), alias("mpi_allreduce_"))) void ompi_allreduce_f(
    char* in, char* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* operation, MPI_Fint* communicator, MPI_Fint* error);
}
