// Netfold for C programs: ranks that fold (sum) tensors among themselves. This page is the whole interface.
//
// One group is one rank's end of a set of ranks. Each rank opens its group, the program makes every rank's address
// known to all (through MPI, a file, a socket of its own), and each connects once. From then on every rank hands over
// the same all-reduces in the same order; a tensor is folded on every rank, or left as it was and an error returned.
//
//   nf_group_options options = NF_GROUP_OPTIONS_INIT;
//   options.rank = rank, options.world = world;
//   nf_group_open(&options, &group, &error);
//   ... exchange nf_group_address(group) ...
//   nf_group_connect(group, addresses, 30.0, &error);
//   nf_all_reduce(group, in, out, count, NF_FLOAT32, NULL, &error);
//   nf_group_close(group, NULL);
//
// Every function returns a status, or cannot fail. No C++ exception leaves the library. Threads: any thread may call
// any function but nf_group_close, which is the last call a group gets.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NF_API __attribute__((visibility("default")))
#else
#define NF_API
#endif

// The interface's own version: a program built with one minor version runs with every later one of the same major.
#define NF_INTERFACE_MAJOR 1
#define NF_INTERFACE_MINOR 0

// What came of a call. The numbers never change.
typedef enum nf_status {
  NF_OK = 0,
  NF_PENDING = 1,           // not finished yet; no error
  NF_INVALID_ARGUMENT = 2,  // asked for something that has no meaning
  NF_TIMEOUT = 3,           // a bound on waiting was passed
  NF_PEER_FAILED = 4,       // another rank died, left or fell silent
  NF_MISMATCH = 5,          // ranks disagree about what they fold
  NF_SYSTEM = 6             // the operating system said no, or memory ran out
} nf_status;

// A failed call fills this in, if the caller gave one (every `error` may be NULL).
typedef struct nf_error {
  nf_status status;
  int rank;        // the rank to blame, -1 for nobody
  char text[512];  // what happened, whom it concerns, what to do: one sentence, zero-terminated, cut if longer
} nf_error;

// Elements in memory.
typedef enum nf_type { NF_FLOAT32 = 0, NF_FLOAT16 = 1, NF_BFLOAT16 = 2, NF_INT32 = 3 } nf_type;

// How elements travel. NF_AS_IT_IS sends them exactly as they are in memory. NF_BFP is block floating point: `block`
// elements share an exponent and keep mantissas of `mantissa` bits; its default takes 17 bytes for 16 elements.
// Integers travel as they are.
typedef enum nf_format {
  NF_AS_IT_IS = 0,
  NF_AS_FLOAT32 = 1,
  NF_AS_FLOAT16 = 2,
  NF_AS_BFLOAT16 = 3,
  NF_AS_BFP = 4
} nf_format;

// Who does the work.
typedef enum nf_placement {
  NF_OWN_THREAD = 0,     // a thread of the group's: all-reduces proceed while the program computes
  NF_CALLERS_THREAD = 1  // whoever waits or tests: the lowest latency, nothing proceeds in between
} nf_placement;

// Start from NF_GROUP_OPTIONS_INIT: struct_bytes tells the library which version of this struct it is given.
typedef struct nf_group_options {
  size_t struct_bytes;
  int rank, world;     // this rank, 0 to world - 1; how many there are
  const char* listen;  // IPv4 "host:port" that the other ranks can reach; port 0: the kernel picks one
  double timeout_s;    // the longest an all-reduce may make no progress: then it fails, and names who is missing
  nf_placement placement;
  int core;               // where the group's thread runs; -1: anywhere
  int use_shared_memory;  // between ranks of one machine; 0: TCP there, too
} nf_group_options;
#define NF_GROUP_OPTIONS_INIT \
  { sizeof(nf_group_options), 0, 1, "127.0.0.1:0", 30.0, NF_OWN_THREAD, -1, 1 }

// How one tensor is folded; the same on every rank. Start from NF_FOLD_OPTIONS_INIT.
typedef struct nf_fold_options {
  size_t struct_bytes;
  nf_format format;
  int average;              // 1: the sum divided by the number of ranks
  const char* algorithm;    // "ring", "halving-doubling", ... (`netfold schedule list`); NULL: by size and world
  int block, mantissa;      // of NF_AS_BFP: 8, 16, 32, 64 or 128 elements; 2 to 7 bits
  int sub_nodes, switches;  // "hdrm": the BiGraph the ranks are in
  int group;                // "hierarchical": ranks of one machine, neighbours in rank order
  const char* between;      // "hierarchical": the algorithm between machines
} nf_fold_options;
#define NF_FOLD_OPTIONS_INIT \
  { sizeof(nf_fold_options), NF_AS_IT_IS, 0, NULL, 16, 7, 0, 0, 0, "ring" }

typedef struct nf_group nf_group;
typedef uint64_t nf_ticket;

// The calls made most. `in` and `out` hold `count` elements of `type` (count, never bytes) and may be the same memory,
// but not overlap otherwise. `options` may be NULL: NF_FOLD_OPTIONS_INIT.

// Folds and returns when the sum is in `out`. On failure `in` is as it was, also where it is `out`; an `out` of its own
// holds nothing in particular.
NF_API nf_status nf_all_reduce(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                               const nf_fold_options* options, nf_error* error);

// Hands a tensor over and returns at once. `in` and `out` must live, and stay untouched by the caller, until its ticket
// is finished. A ticket is used up by the nf_wait or nf_test that returns anything but NF_PENDING.
NF_API nf_status nf_submit(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                           const nf_fold_options* options, nf_ticket* ticket, nf_error* error);
// At most timeout_s (seconds, up to 1e9), then NF_PENDING.
NF_API nf_status nf_wait(nf_group* group, nf_ticket ticket, double timeout_s, nf_error* error);
// Does not wait. In the caller's thread it moves what can be moved.
NF_API nf_status nf_test(nf_group* group, nf_ticket ticket, nf_error* error);

// Listens. `*group` is the caller's to close; NULL on failure.
NF_API nf_status nf_group_open(const nf_group_options* options, nf_group** group, nf_error* error);
// "host:port" where this rank listens. The group's memory, valid until it is closed.
NF_API const char* nf_group_address(const nf_group* group);
// `addresses`: one a rank, by rank, read only during the call. Blocks until all are connected, at most timeout_s
// (seconds) and at most the group's own timeout. Once a group.
NF_API nf_status nf_group_connect(nf_group* group, const char* const* addresses, double timeout_s, nf_error* error);
// Leaves the group and frees it; unfinished all-reduces fail on every rank. `reason`, if not NULL, tells the other
// ranks that this one failed, and why. A NULL group is left alone.
NF_API void nf_group_close(nf_group* group, const char* reason);

// "0.1.0", of the library that runs; lives for ever, as the next one.
NF_API const char* nf_version(void);
// "ok", "pending", "timeout", ...
NF_API const char* nf_status_name(nf_status status);

#ifdef __cplusplus
}
#endif
