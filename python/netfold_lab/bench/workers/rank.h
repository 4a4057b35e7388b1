// The common part of ranks in C: the commands of the coordinator (netfold_lab/bench/control.py), like rank.py.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

// Puts the sum over all ranks of `count` elements at `in` into `out`, by an algorithm of that name. NULL, or what went
// wrong.
typedef const char* (*all_reduce_function)(const void* in, void* out, size_t count, int is_int, const char* wire,
                                           const char* algorithm);

static void die(const char* what) {
  fprintf(stderr, "rank: %s\n", what);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t crc32_of(const unsigned char* data, size_t size) {
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

static void* read_file(const char* path, size_t size) {
  void* data = malloc(size ? size : 1);
  FILE* file = fopen(path, "rb");
  if (!data || !file || fread(data, 1, size, file) != size) die(path);
  fclose(file);
  return data;
}

static double error_of(const void* result, const double* expected, size_t count, int is_int) {
  double worst = 0;
  for (size_t i = 0; i < count; i++) {
    double x = is_int ? ((const int32_t*)result)[i] : ((const float*)result)[i];
    double d = fabs(x - expected[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// Answers the coordinator at this unix socket until it says quit or hangs up.
static void serve(const char* control, int rank, all_reduce_function all_reduce) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, control, sizeof address.sun_path - 1);
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(s, (struct sockaddr*)&address, sizeof address)) die("cannot reach the coordinator");
  FILE* words = fdopen(s, "r");
  dprintf(s, "hello %d\n", rank);

  char line[8192], dtype[16], wire[16], input_path[2048], expected_path[2048], algorithm[64];
  void *input = NULL, *result = NULL, *expected = NULL;
  size_t count = 0;
  int is_int = 0;
  while (fgets(line, sizeof line, words)) {
    long long start_ns;
    int iterations;
    if (sscanf(line, "prepare %zu %15s %15s %2047s %2047s", &count, dtype, wire, input_path, expected_path) == 5) {
      free(input), free(result), free(expected);
      is_int = !strcmp(dtype, "int32");
      input = read_file(input_path, count * 4);
      expected = read_file(expected_path, count * 8);
      result = calloc(count, 4);
      dprintf(s, "ready\n");
    } else if (sscanf(line, "run %lld %63s %d", &start_ns, algorithm, &iterations) == 3) {
      memset(result, 0, count * 4);
      struct timespec start = {.tv_sec = start_ns / 1000000000, .tv_nsec = start_ns % 1000000000};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL);
      const char* error = NULL;
      int64_t begin = now_ns();
      for (int i = 0; i < iterations && !error; i++) error = all_reduce(input, result, count, is_int, wire, algorithm);
      int64_t elapsed = (now_ns() - begin) / iterations;
      if (error) {
        dprintf(s, "error %s\n", error);
        continue;
      }
      dprintf(s, "done %lld\n", (long long)elapsed);
    } else if (!strncmp(line, "check", 5)) {
      dprintf(s, "done %.17g %08x\n", error_of(result, expected, count, is_int), crc32_of(result, count * 4));
    } else if (!strncmp(line, "quit", 4)) {
      break;
    }
  }
  free(input), free(result), free(expected);
  fclose(words);
}
