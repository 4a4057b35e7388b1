// The C interface as a C99 program meets it. Ranks are threads; every rank checks what it gets.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <netfold.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 3, COUNT = 1000, LARGE = 300000 };

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (condition) break;                                                \
    fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    exit(1);                                                             \
  } while (0)
#define OK(call)                                                                                       \
  do {                                                                                                 \
    const nf_status status_ = (call);                                                                  \
    if (status_ == NF_OK) break;                                                                       \
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, nf_status_name(status_), error.text);       \
    exit(1);                                                                                           \
  } while (0)

typedef struct {
  nf_placement placement;
  pthread_barrier_t barrier;
  char addresses[WORLD][64];
} meeting;

typedef struct {
  int rank;
  meeting *with;
} place;

static nf_group *join(const place *self) {
  nf_error error = {NF_OK, 0, ""};
  nf_group_options options = NF_GROUP_OPTIONS_INIT;
  options.rank = self->rank;
  options.world = WORLD;
  options.placement = self->with->placement;
  options.timeout_s = 20.0;
  if (options.placement == NF_OWN_THREAD) {  // and tags on TCP
    options.secret = "open sesame";
    options.require_auth = 1;
    options.use_shared_memory = 0;
    options.interfaces = "lo";
    options.tcp_streams = 3;
  }
  nf_group *group = NULL;
  OK(nf_group_open(&options, &group, &error));
  snprintf(self->with->addresses[self->rank], 64, "%s", nf_group_address(group));
  pthread_barrier_wait(&self->with->barrier);
  const char *addresses[WORLD];
  for (int rank = 0; rank < WORLD; rank++) addresses[rank] = self->with->addresses[rank];
  OK(nf_group_connect(group, addresses, 20.0, &error));
  CHECK(nf_group_connect(group, addresses, 20.0, NULL) == NF_INVALID_ARGUMENT);
  return group;
}

static void sums(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  float *in = malloc(LARGE * sizeof *in), *out = malloc(LARGE * sizeof *out);
  CHECK(in != NULL && out != NULL);
  for (int i = 0; i < LARGE; i++) in[i] = (float)(i % 1000 + self->rank);
  OK(nf_all_reduce(group, in, out, LARGE, NF_FLOAT32, NULL, &error));
  for (int i = 0; i < LARGE; i++) CHECK(out[i] == (float)(3 * (i % 1000) + 3));

  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  options.average = 1;
  options.algorithm = "ring";
  OK(nf_all_reduce(group, in, in, COUNT, NF_FLOAT32, &options, &error));  // in place
  for (int i = 0; i < COUNT; i++) CHECK(in[i] == (float)(i % 1000 + 1));

  options.average = 0;
  options.format = NF_AS_BFP;
  OK(nf_all_reduce(group, in, out, COUNT, NF_FLOAT32, &options, &error));
  for (int i = 0; i < COUNT; i++) CHECK(fabsf(out[i] - 3 * in[i]) <= 6 * 3 * 1000.0F / 128);
  CHECK(memcmp(out, in, COUNT * sizeof *out) != 0);

  int32_t integers[COUNT];
  for (int i = 0; i < COUNT; i++) integers[i] = self->rank == 0 ? INT32_MAX : 1;
  OK(nf_all_reduce(group, integers, integers, COUNT, NF_INT32, NULL, &error));
  for (int i = 0; i < COUNT; i++) CHECK(integers[i] == INT32_MIN + 1);

  uint16_t halves[COUNT];
  for (int i = 0; i < COUNT; i++) halves[i] = 0x3c00;  // 1 as fp16
  OK(nf_all_reduce(group, halves, halves, COUNT, NF_FLOAT16, NULL, &error));
  for (int i = 0; i < COUNT; i++) CHECK(halves[i] == 0x4200);  // 3
  OK(nf_all_reduce(group, NULL, NULL, 0, NF_FLOAT32, NULL, &error));
  free(in);
  free(out);
}

// Types and operations that have no format travel as they are.
static void operations(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  double doubles[COUNT];
  for (int i = 0; i < COUNT; i++) doubles[i] = i + self->rank + 1e-12;
  OK(nf_all_reduce(group, doubles, doubles, COUNT, NF_FLOAT64, NULL, &error));
  for (int i = 0; i < COUNT; i++) CHECK(fabs(doubles[i] - (3.0 * i + 3 + 3e-12)) < 1e-12);

  options.operation = NF_MAX;
  options.format = NF_AS_BFP;  // sums only
  float floats[COUNT];
  for (int i = 0; i < COUNT; i++) floats[i] = (float)(i + self->rank) / 3;
  OK(nf_all_reduce(group, floats, floats, COUNT, NF_FLOAT32, &options, &error));
  for (int i = 0; i < COUNT; i++) CHECK(floats[i] == (float)(i + WORLD - 1) / 3);

  static const struct {
    nf_operation operation;
    unsigned result;
  } of_bytes[] = {{NF_SUM, 0x1f}, {NF_PRODUCT, 0xbd}, {NF_MIN, 1}, {NF_MAX, 0x15}, {NF_BIT_AND, 1}, {NF_BIT_OR, 0x1d}, {NF_BIT_XOR, 0x1d}};
  static const uint8_t mine[WORLD] = {1, 0x15, 0x09};
  for (size_t each = 0; each < sizeof of_bytes / sizeof *of_bytes; each++) {
    uint8_t bytes[COUNT], result[COUNT];
    memset(bytes, mine[self->rank], COUNT);
    options.operation = of_bytes[each].operation;
    OK(nf_all_reduce(group, bytes, result, COUNT, NF_UINT8, &options, &error));
    for (int i = 0; i < COUNT; i++) CHECK(result[i] == (of_bytes[each].result & 0xff));
  }
  CHECK(nf_all_reduce(group, floats, floats, COUNT, NF_FLOAT32, &options, &error) == NF_INVALID_ARGUMENT);
  CHECK(strstr(error.text, "bxor") != NULL);
  int64_t large = self->rank == 0 ? -(INT64_C(1) << 40) : 1;
  options.operation = NF_MIN;
  OK(nf_all_reduce(group, &large, &large, 1, NF_INT64, &options, &error));
  CHECK(large == -(INT64_C(1) << 40));
}

static void collectives(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  for (int large = 0; large < 2; large++) {  // by another algorithm
    const int count = large ? LARGE : COUNT;
    float *all = malloc((size_t)WORLD * count * sizeof *all), *part = malloc(count * sizeof *part);
    CHECK(all != NULL && part != NULL);
    for (int i = 0; i < WORLD * count; i++) all[i] = (float)(i % 1000 + self->rank);
    OK(nf_reduce_scatter(group, all, part, (size_t)count, NF_FLOAT32, NULL, &error));
    for (int i = 0; i < count; i++) CHECK(part[i] == (float)(3 * ((self->rank * count + i) % 1000) + 3));
    OK(nf_all_gather(group, part, all, (size_t)count, NF_FLOAT32, NULL, &error));
    for (int i = 0; i < WORLD * count; i++) CHECK(all[i] == (float)(3 * (i % 1000) + 3));
    for (int i = 0; i < count; i++) part[i] = (float)(i + self->rank);
    OK(nf_broadcast(group, part, (size_t)count, NF_FLOAT32, 2, &error));
    for (int i = 0; i < count; i++) CHECK(part[i] == (float)(i + 2));
    free(all);
    free(part);
  }
  OK(nf_barrier(group, &error));
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  options.collective = NF_ALL_GATHER;
  nf_ticket ticket = 0;
  int16_t rank = (int16_t)self->rank, ranks[WORLD];
  OK(nf_submit(group, &rank, ranks, 1, NF_INT16, &options, &ticket, &error));
  OK(nf_wait(group, ticket, 20.0, &error));
  for (int each = 0; each < WORLD; each++) CHECK(ranks[each] == each);
}

static void tickets(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  float first[COUNT], second[COUNT];
  for (int i = 0; i < COUNT; i++) first[i] = second[i] = 1;
  nf_ticket one = 0, two = 0;
  if (self->rank == 0) {  // no other rank is there: nothing can finish
    OK(nf_submit(group, first, first, COUNT, NF_FLOAT32, NULL, &one, &error));
    CHECK(nf_test(group, one, &error) == NF_PENDING);
    CHECK(nf_wait(group, one, 0.01, &error) == NF_PENDING);
  }
  pthread_barrier_wait(&self->with->barrier);
  if (self->rank != 0) OK(nf_submit(group, first, first, COUNT, NF_FLOAT32, NULL, &one, &error));
  OK(nf_submit(group, second, second, COUNT, NF_FLOAT32, NULL, &two, &error));
  OK(nf_wait(group, two, 20.0, &error));
  nf_status status;
  while ((status = nf_test(group, one, &error)) == NF_PENDING) continue;
  CHECK(status == NF_OK);
  for (int i = 0; i < COUNT; i++) CHECK(first[i] == WORLD && second[i] == WORLD);
}

static void wrong_use(nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  nf_ticket ticket = 0;
  float x = 1;
  CHECK(nf_all_reduce(NULL, &x, &x, 1, NF_FLOAT32, NULL, &error) == NF_INVALID_ARGUMENT);
  CHECK(error.status == NF_INVALID_ARGUMENT && error.rank == -1 && strlen(error.text) > 0);
  CHECK(nf_submit(group, &x, &x, 1, NF_FLOAT32, NULL, NULL, NULL) == NF_INVALID_ARGUMENT);
  CHECK(nf_submit(group, &x, &x, 1, (nf_type)77, NULL, &ticket, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_broadcast(group, &x, 1, NF_FLOAT32, WORLD, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_submit(group, NULL, &x, 1, NF_FLOAT32, NULL, &ticket, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_wait(group, 1, -1.0, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_wait(group, 1, (double)NAN, &error) == NF_INVALID_ARGUMENT);
  nf_fold_options options = NF_FOLD_OPTIONS_INIT;
  options.algorithm = "clockwork";
  CHECK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, &options, &error) == NF_INVALID_ARGUMENT);
  CHECK(strstr(error.text, "clockwork") != NULL);
  options.algorithm = "ring";
  options.format = NF_AS_BFP;
  options.block = 12;
  CHECK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, &options, &error) == NF_INVALID_ARGUMENT);
  options.struct_bytes = 0;
  CHECK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, &options, &error) == NF_INVALID_ARGUMENT);
  options = (nf_fold_options)NF_FOLD_OPTIONS_INIT;
  options.struct_bytes = offsetof(nf_fold_options, algorithm);  // of a program that was built with an earlier header
  options.algorithm = "clockwork";
  OK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, &options, &error));
  CHECK(x == WORLD);
}

// A child of fork() cannot use the group, and does not leave in its parent's name.
static void child(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  float x = 1;
  if (self->rank == 0) {
    const pid_t forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
      const nf_status status = nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, NULL, &error);
      nf_group_close(group, NULL);
      _exit(status == NF_INVALID_ARGUMENT && strstr(error.text, "forked") != NULL ? 0 : 1);
    }
    int ended = -1;
    CHECK(waitpid(forked, &ended, 0) == forked && ended == 0);
  }
  OK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, NULL, &error));
  CHECK(x == WORLD);
}

// Every rank's error names the rank that caused it, and tensors are unchanged.
static void disagreement(const place *self, nf_group *group) {
  nf_error error = {NF_OK, 0, ""};
  float vector[COUNT];
  for (int i = 0; i < COUNT; i++) vector[i] = (float)i;
  const size_t count = self->rank == 1 ? COUNT - 1 : COUNT;
  CHECK(nf_all_reduce(group, vector, vector, count, NF_FLOAT32, NULL, &error) == NF_MISMATCH);
  CHECK(strstr(error.text, "999") != NULL && strstr(error.text, "1000") != NULL);
  for (int i = 0; i < COUNT; i++) CHECK(vector[i] == (float)i);
  CHECK(nf_all_reduce(group, vector, vector, COUNT, NF_FLOAT32, NULL, &error) == NF_MISMATCH);  // it stays failed
}

static void departure(const place *self) {
  nf_error error = {NF_OK, 0, ""};
  nf_group *group = join(self);
  pthread_barrier_wait(&self->with->barrier);  // who is still connecting would hear of it there
  float x = 1;
  if (self->rank == 2) {
    nf_group_close(group, "its disk is full");
    return;
  }
  CHECK(nf_all_reduce(group, &x, &x, 1, NF_FLOAT32, NULL, &error) == NF_PEER_FAILED);
  CHECK(error.rank == 2 && strstr(error.text, "its disk is full") != NULL && x == 1);
  nf_group_close(group, NULL);
}

static void *run(void *argument) {
  const place *self = argument;
  nf_group *group = join(self);
  sums(self, group);
  operations(self, group);
  collectives(self, group);
  tickets(self, group);
  wrong_use(group);
  child(self, group);
  disagreement(self, group);
  nf_group_close(group, NULL);
  departure(self);
  return NULL;
}

typedef struct {
  nf_group *group;
  double timeout_s;
  nf_status status;  // that it gets
} answerer;

static void *answer(void *argument) {
  const answerer *self = argument;
  const char *addresses[] = {nf_group_address(self->group), "127.0.0.1:1"};
  CHECK(nf_group_connect(self->group, addresses, self->timeout_s, NULL) == self->status);
  return NULL;
}

// Rank 1 connects to rank 0 and gets this status, and an error with this word.
static void do_not_meet(const nf_group_options *lower_options, const nf_group_options *upper_options, answerer lower,
                        nf_status status, const char *word) {
  nf_error error = {NF_OK, 0, ""};
  nf_group *upper = NULL;
  OK(nf_group_open(lower_options, &lower.group, &error));
  OK(nf_group_open(upper_options, &upper, &error));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, answer, &lower) == 0);
  const char *addresses[] = {nf_group_address(lower.group), nf_group_address(upper)};
  CHECK(nf_group_connect(upper, addresses, 10.0, &error) == status);
  CHECK(strstr(error.text, word) != NULL);
  pthread_join(thread, NULL);
  nf_group_close(lower.group, NULL);
  nf_group_close(upper, NULL);
}

// A stranger that connects first is not rank 1.
static void another_secret(void) {
  nf_group_options lower = NF_GROUP_OPTIONS_INIT;
  lower.world = 2;
  lower.secret = "open sesame";
  nf_group_options stranger = lower;
  stranger.rank = 1, stranger.secret = NULL;
  do_not_meet(&lower, &stranger, (answerer){NULL, 1.0, NF_TIMEOUT}, NF_PEER_FAILED, "secret");
}

// All ranks want tags, or none does.
static void tags_on_one_rank(void) {
  nf_group_options lower = NF_GROUP_OPTIONS_INIT;
  lower.world = 2;
  lower.secret = "open sesame";
  lower.require_auth = 1;
  nf_group_options upper = lower;
  upper.rank = 1, upper.struct_bytes = offsetof(nf_group_options, require_auth);  // built with interface 1.2
  do_not_meet(&lower, &upper, (answerer){NULL, 10.0, NF_MISMATCH}, NF_MISMATCH, "require_auth");
}

static void nobody_there(void) {
  nf_error error = {NF_OK, 0, ""};
  nf_group_options options = NF_GROUP_OPTIONS_INIT;
  nf_group *group = NULL;
  options.rank = 2, options.world = 2;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && group == NULL);
  CHECK(nf_group_open(&options, NULL, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_group_open(NULL, &group, &error) == NF_INVALID_ARGUMENT);
  options.rank = 1, options.roce = "version=1";
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && strstr(error.text, "INTERFACE") != NULL);
  options.roce = "nosuch", options.require_auth = 1;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && strstr(error.text, "no tags") != NULL);
  options.roce = NULL;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && strstr(error.text, "secret") != NULL);
  options.require_auth = 0;
  options.interfaces = "lo,nosuch";
  CHECK(nf_group_open(&options, &group, &error) != NF_OK && strstr(error.text, "nosuch") != NULL);
  options.interfaces = NULL, options.tcp_streams = 17;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && strstr(error.text, "1 to 16") != NULL);
  options.tcp_streams = 1, options.dscp = 64;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT && strstr(error.text, "dscp") != NULL);
  options.dscp = 0;
  options.roce = "nosuch{rank}";
  CHECK(nf_group_open(&options, &group, &error) == NF_SYSTEM && group == NULL);
  options.struct_bytes = offsetof(nf_group_options, roce);  // of a program that was built with interface 1.0
  OK(nf_group_open(&options, &group, &error));
  nf_group_close(group, NULL);
  options = (nf_group_options)NF_GROUP_OPTIONS_INIT;
  options.rank = 1, options.world = 2;
  options.timeout_s = (double)NAN;
  CHECK(nf_group_open(&options, &group, &error) == NF_INVALID_ARGUMENT);
  options.timeout_s = 20.0;
  OK(nf_group_open(&options, &group, &error));
  const char *addresses[] = {"127.0.0.1:1", nf_group_address(group)};
  CHECK(nf_group_connect(group, NULL, 1.0, &error) == NF_INVALID_ARGUMENT);
  CHECK(nf_group_connect(group, addresses, 0.3, &error) == NF_TIMEOUT);
  CHECK(strlen(error.text) > 0);
  nf_group_close(group, NULL);
  nf_group_close(NULL, NULL);
  CHECK(strlen(nf_version()) > 0);
}

int main(void) {
  const nf_placement placements[] = {NF_OWN_THREAD, NF_CALLERS_THREAD};
  for (int i = 0; i < 2; i++) {
    meeting with = {.placement = placements[i]};
    place places[WORLD];
    pthread_t threads[WORLD];
    CHECK(pthread_barrier_init(&with.barrier, NULL, WORLD) == 0);
    for (int rank = 0; rank < WORLD; rank++) {
      places[rank] = (place){rank, &with};
      CHECK(pthread_create(&threads[rank], NULL, run, &places[rank]) == 0);
    }
    for (int rank = 0; rank < WORLD; rank++) pthread_join(threads[rank], NULL);
    pthread_barrier_destroy(&with.barrier);
  }
  another_secret();
  tags_on_one_rank();
  nobody_there();
  return 0;
}
