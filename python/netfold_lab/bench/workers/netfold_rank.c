// A rank of Netfold without a switch, through the C interface, its engine in this thread:
// netfold_rank CONTROL MEETING shm|tcp HOST RANK WORLD TIMEOUT_S
//
// MEETING is a folder where the ranks write where they listen, as host.py does.
#define _GNU_SOURCE
#include "netfold.h"

#include <unistd.h>

#include "rank.h"

static nf_group *group;
static nf_error error;

static const char *all_reduce(const void *in, void *out, size_t count, int is_int, const char *wire,
                              const char *algorithm) {
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  if (strcmp(algorithm, "auto")) options.algorithm = algorithm;
  if (!strcmp(wire, "bfp")) options.format = NF_AS_BFP;
  if (!strcmp(wire, "fp16")) options.format = NF_AS_FLOAT16;
  if (!strcmp(wire, "bf16")) options.format = NF_AS_BFLOAT16;
  nf_status status = nf_all_reduce(group, in, out, count, is_int ? NF_INT32 : NF_FLOAT32, &options, &error);
  return status == NF_OK ? NULL : error.text;
}

static void publish(const char *folder, int rank, const char *address) {
  char unfinished[4096], path[4096];
  snprintf(unfinished, sizeof unfinished, "%s/%d.new", folder, rank);
  snprintf(path, sizeof path, "%s/%d", folder, rank);
  FILE *file = fopen(unfinished, "w");
  if (!file || fputs(address, file) < 0 || fclose(file) || rename(unfinished, path)) die("cannot write to the meeting");
}

static const char *address_of(const char *folder, int rank, double timeout_s) {
  char path[4096], *text = calloc(1, 64);
  snprintf(path, sizeof path, "%s/%d", folder, rank);
  for (int64_t deadline = now_ns() + (int64_t)(timeout_s * 1e9); now_ns() < deadline; usleep(10000)) {
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (!fgets(text, 64, file)) die("an empty address");
    fclose(file);
    return text;
  }
  die("a rank did not come in time");
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 8) die("usage: netfold_rank CONTROL MEETING shm|tcp HOST RANK WORLD TIMEOUT_S");
  char listen[128];
  snprintf(listen, sizeof listen, "%s:0", argv[4]);
  nf_group_options options = NF_GROUP_OPTIONS_INIT;
  options.rank = atoi(argv[5]), options.world = atoi(argv[6]), options.timeout_s = atof(argv[7]);
  options.listen = listen;
  options.use_shared_memory = !strcmp(argv[3], "shm");
  options.placement = NF_CALLERS_THREAD;
  if (nf_group_open(&options, &group, &error) != NF_OK) die(error.text);
  publish(argv[2], options.rank, nf_group_address(group));
  const char **addresses = calloc((size_t)options.world, sizeof *addresses);
  for (int rank = 0; rank < options.world; rank++) addresses[rank] = address_of(argv[2], rank, options.timeout_s);
  if (nf_group_connect(group, addresses, options.timeout_s, &error) != NF_OK) die(error.text);
  serve(argv[1], options.rank, all_reduce);
  nf_group_close(group, NULL);
  return 0;
}
