// Ranks of one machine sum a vector through the C interface, and say how long that took.
//
//   cc all_reduce.c -o all_reduce $(pkg-config --cflags --libs netfold)
//   ./all_reduce 4 1048576 20        # ranks, floats, times
//   NETFOLD_ROCE='eth{rank}' ./all_reduce 4 1048576 20    # over RoCE, through a switch that folds it
//   NETFOLD_NIC='/tmp/nic{rank}' ./all_reduce 2 100000 2  # around a ring of smart NICs, or simulated ones
//
// The ranks are processes that the program starts itself. How they tell each other their addresses is the program's own
// business; here each writes its own down a pipe, and the parent hands the list to all.
#define _POSIX_C_SOURCE 200809L
#include <netfold.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64 };

typedef struct {
  int to_parent[2], to_rank[2];
} pipes;

static void check(int rank, nf_status status, const nf_error *error) {
  if (status == NF_OK) return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, nf_status_name(status), error->text);
  exit(1);
}

// The bytes of a pipe may come in pieces.
static int read_all(int pipe, void *into, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(pipe, (char *)into + done, bytes - done);
    if (got <= 0) return 0;
    done += (size_t)got;
  }
  return 1;
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static nf_group *join(int rank, int world, const pipes *to) {
  nf_error error;
  nf_group *group;
  nf_group_options options = NF_GROUP_OPTIONS_INIT;
  options.rank = rank;
  options.world = world;
  options.placement = NF_CALLERS_THREAD;
  options.roce = getenv("NETFOLD_ROCE");
  options.nic = getenv("NETFOLD_NIC");
  check(rank, nf_group_open(&options, &group, &error), &error);

  char own[NF_ADDRESS_BYTES] = "", all[RANKS_MAX][NF_ADDRESS_BYTES];
  const char *addresses[RANKS_MAX];
  strncpy(own, nf_group_address(group), sizeof own - 1);
  const size_t all_bytes = (size_t)world * NF_ADDRESS_BYTES;
  if (write(to->to_parent[1], own, sizeof own) != (ssize_t)sizeof own) exit(1);
  if (!read_all(to->to_rank[0], all, all_bytes)) exit(1);
  for (int each = 0; each < world; each++) addresses[each] = all[each];
  check(rank, nf_group_connect(group, addresses, 30.0, &error), &error);
  return group;
}

static void run_rank(int rank, int world, size_t count, int times, const pipes *to) {
  nf_error error;
  nf_group *group = join(rank, world, to);
  float *vector = malloc(count * sizeof *vector), *sum = malloc(count * sizeof *sum);
  if (vector == NULL || sum == NULL) exit(1);
  for (size_t i = 0; i < count; i++) vector[i] = (float)(rank + 1);

  check(rank, nf_all_reduce(group, vector, sum, count, NF_FLOAT32, NULL, &error), &error);
  const double start_s = now_s();
  for (int i = 0; i < times; i++) {
    check(rank, nf_all_reduce(group, vector, sum, count, NF_FLOAT32, NULL, &error), &error);
  }
  const double each_s = (now_s() - start_s) / times;

  for (size_t i = 0; i < count; i++) {
    if (sum[i] == (float)(world * (world + 1) / 2)) continue;
    fprintf(stderr, "rank %d: element %zu is %g\n", rank, i, (double)sum[i]);
    exit(1);
  }
  if (rank == 0) printf("%d ranks, %zu floats: %.1f us, with netfold %s\n", world, count, 1e6 * each_s, nf_version());
  free(vector);
  free(sum);
  nf_group_close(group, NULL);
}

int main(int argc, char **argv) {
  const int world = argc > 1 ? atoi(argv[1]) : 4;
  const size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1 << 20;
  const int times = argc > 3 ? atoi(argv[3]) : 20;
  if (world < 1 || world > RANKS_MAX || times < 1) {
    fprintf(stderr, "usage: all_reduce [RANKS, 1 to %d] [FLOATS] [TIMES]\n", RANKS_MAX);
    return 2;
  }
  pipes to[RANKS_MAX];
  for (int rank = 0; rank < world; rank++) {
    if (pipe(to[rank].to_parent) != 0 || pipe(to[rank].to_rank) != 0) return 1;
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      run_rank(rank, world, count, times, &to[rank]);
      return 0;
    }
    close(to[rank].to_parent[1]);  // so that a rank that dies is the end of its pipe
  }
  char all[RANKS_MAX][NF_ADDRESS_BYTES];
  for (int rank = 0; rank < world; rank++) {
    if (!read_all(to[rank].to_parent[0], all[rank], NF_ADDRESS_BYTES)) return 1;
  }
  const size_t all_bytes = (size_t)world * NF_ADDRESS_BYTES;
  for (int rank = 0; rank < world; rank++) {
    if (write(to[rank].to_rank[1], all, all_bytes) != (ssize_t)all_bytes) return 1;
  }
  int is_well = 1;
  for (int status; wait(&status) > 0;) is_well = is_well && status == 0;
  return is_well ? 0 : 1;
}
