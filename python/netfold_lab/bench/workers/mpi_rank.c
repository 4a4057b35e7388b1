// A rank of OpenMPI: mpi_rank CONTROL
//
// One program serves every algorithm: OpenMPI reads `coll_tuned_allreduce_algorithm` when a communicator is made, so a
// communicator is made for each, with that variable set through the tools interface (MPI_T). Algorithm 0 leaves the
// choice to OpenMPI's fixed rules, which is its default, and so does any other name: a library before OpenMPI's may know
// it. The suffix of a name ("ring-spinning") is the launcher's waiting mode.
#define _GNU_SOURCE
#include <mpi.h>

#include "rank.h"

#define ALGORITHMS 3
static const char *const kNames[ALGORITHMS] = {"default", "ring", "rabenseifner"};
static const int kNumbers[ALGORITHMS] = {0, 4, 6};
static MPI_Comm communicators[ALGORITHMS];

static MPI_Comm communicator_for(int algorithm) {
  int index, count, provided;
  MPI_T_cvar_handle handle;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  if (MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) != MPI_SUCCESS) die("no tuned collectives");
  if (MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) die("MPI_T_cvar_handle_alloc");
  if (MPI_T_cvar_write(handle, &algorithm) != MPI_SUCCESS) die("the algorithm cannot be chosen");
  MPI_T_cvar_handle_free(&handle);
  MPI_Comm made;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  return made;
}

static const char *all_reduce(const void *in, void *out, size_t count, int is_int, const char *wire,
                              const char *algorithm) {
  (void)wire;  // as it is in memory
  int a = ALGORITHMS - 1;
  while (a > 0 && strncmp(kNames[a], algorithm, strlen(kNames[a]))) a--;
  MPI_Allreduce(in, out, (int)count, is_int ? MPI_INT32_T : MPI_FLOAT, MPI_SUM, communicators[a]);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 2) die("usage: mpi_rank CONTROL");
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int a = 0; a < ALGORITHMS; a++) communicators[a] = communicator_for(kNumbers[a]);
  serve(argv[1], rank, all_reduce);
  MPI_Finalize();
  return 0;
}
