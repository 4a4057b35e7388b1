// The symbols that a Fortran program's `call MPI_Allreduce(...)` becomes, with and without MPI_IN_PLACE.
#include <mpi.h>
#include <stdio.h>

void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *operation, MPI_Fint *communicator,
                    MPI_Fint *error);
extern int mpi_fortran_in_place_;

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, world;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  float in[1000], out[1000];
  for (int i = 0; i < 1000; i++) in[i] = (float)(i + rank);
  MPI_Fint count = 1000, type = MPI_Type_c2f(MPI_REAL), sum = MPI_Op_c2f(MPI_SUM), error = -1;
  MPI_Fint communicator = MPI_Comm_c2f(MPI_COMM_WORLD);
  mpi_allreduce_(in, out, &count, &type, &sum, &communicator, &error);
  int wrong = error != MPI_SUCCESS;
  mpi_allreduce_(&mpi_fortran_in_place_, in, &count, &type, &sum, &communicator, &error);
  wrong |= error != MPI_SUCCESS;
  for (int i = 0; i < 1000; i++) {
    const float expected = (float)(world * i + world * (world - 1) / 2);
    wrong |= out[i] != expected || in[i] != expected;
  }
  double doubles[1000];
  for (int i = 0; i < 1000; i++) doubles[i] = i + rank;
  type = MPI_Type_c2f(MPI_DOUBLE_PRECISION);
  mpi_allreduce_(&mpi_fortran_in_place_, doubles, &count, &type, &sum, &communicator, &error);
  wrong |= error != MPI_SUCCESS;
  for (int i = 0; i < 1000; i++) wrong |= doubles[i] != (double)(world * i + world * (world - 1) / 2);
  if (!wrong) printf("rank %d is content\n", rank);
  MPI_Finalize();
  return wrong;
}
