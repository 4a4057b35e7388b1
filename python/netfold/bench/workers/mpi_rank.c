// A rank of OpenMPI, speaking the coordinator's words (netfold/bench/control.py): mpi_rank CONTROL
//
// One program serves every algorithm: OpenMPI reads `coll_tuned_allreduce_algorithm` when a communicator is made, so a
// communicator is made for each, with that variable set through the tools interface (MPI_T). Algorithm 0 leaves the
// choice to OpenMPI's fixed rules, which is its default.
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define ALGORITHMS 3
static const char *const kNames[ALGORITHMS] = {"default", "ring", "rabenseifner"};
static const int kNumbers[ALGORITHMS] = {0, 4, 6};

static void die(const char *what) {
  fprintf(stderr, "mpi_rank: %s\n", what);
  exit(1);
}

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

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t crc32_of(const unsigned char *data, size_t size) {
  static uint32_t table[256];
  if (!table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t c = i;
      for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      table[i] = c;
    }
  uint32_t c = 0xffffffffu;
  for (size_t i = 0; i < size; i++) c = table[(c ^ data[i]) & 255] ^ (c >> 8);
  return c ^ 0xffffffffu;
}

static void *read_file(const char *path, size_t size) {
  void *data = malloc(size ? size : 1);
  FILE *file = fopen(path, "rb");
  if (!data || !file || fread(data, 1, size, file) != size) die(path);
  fclose(file);
  return data;
}

static double error_of(const void *result, const double *expected, size_t count, int is_int) {
  double worst = 0;
  for (size_t i = 0; i < count; i++) {
    double x = is_int ? ((const int32_t *)result)[i] : ((const float *)result)[i];
    double d = fabs(x - expected[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

int main(int argc, char **argv) {
  if (argc != 2) die("usage: mpi_rank CONTROL");
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm communicators[ALGORITHMS];
  for (int a = 0; a < ALGORITHMS; a++) communicators[a] = communicator_for(kNumbers[a]);

  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(s, (struct sockaddr *)&address, sizeof address)) die("cannot reach the coordinator");
  FILE *in = fdopen(s, "r");
  dprintf(s, "hello %d\n", rank);

  char line[8192], dtype[16], wire[16], input_path[2048], expected_path[2048], algorithm[64];
  void *input = NULL, *result = NULL, *expected = NULL;
  size_t count = 0;
  int is_int = 0;
  while (fgets(line, sizeof line, in)) {
    long long start_ns;
    if (sscanf(line, "prepare %zu %15s %15s %2047s %2047s", &count, dtype, wire, input_path, expected_path) == 5) {
      free(input), free(result), free(expected);
      is_int = !strcmp(dtype, "int32");
      input = read_file(input_path, count * 4);
      expected = read_file(expected_path, count * 8);
      result = calloc(count, 4);
      dprintf(s, "ready\n");
    } else if (sscanf(line, "run %lld %63s", &start_ns, algorithm) == 2) {
      int a = 0;
      while (a < ALGORITHMS && strcmp(kNames[a], algorithm)) a++;
      if (a == ALGORITHMS) die("unknown algorithm");
      memset(result, 0, count * 4);
      struct timespec start = {.tv_sec = start_ns / 1000000000, .tv_nsec = start_ns % 1000000000};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL);
      int64_t begin = now_ns();
      MPI_Allreduce(input, result, (int)count, is_int ? MPI_INT32_T : MPI_FLOAT, MPI_SUM, communicators[a]);
      int64_t elapsed = now_ns() - begin;
      dprintf(s, "done %lld %.17g %08x\n", (long long)elapsed, error_of(result, expected, count, is_int),
              crc32_of(result, count * 4));
    } else if (!strncmp(line, "quit", 4)) {
      break;
    }
  }
  MPI_Finalize();
  return 0;
}
