// Netfold for C programs: ranks that fold tensors, among themselves, through their smart NICs, or through a switch of
// RoCE. To fold is to sum in a fixed order. Ranks that do not use RoCE also have the other operations, and more
// collectives.
// This header is the whole interface.
//
// A group is one rank's end of a set of ranks. Each rank opens its group. The program sends every rank's address to all
// ranks (through MPI, a file or a socket of its own), and each rank connects once. From then on every rank submits the
// same collectives in the same order. A tensor is folded on every rank, or it is left as it was and an error is
// returned.
//
//   nf_group_options options = NF_GROUP_OPTIONS_INIT;
//   options.rank = rank, options.world = world;
//   nf_group_open(&options, &group, &error);
//   ... exchange nf_group_address(group) ...
//   nf_group_connect(group, addresses, 30.0, &error);
//   nf_all_reduce(group, in, out, count, NF_FLOAT32, NULL, &error);
//   nf_group_close(group, NULL);
//
// Every function returns a status, or cannot fail. No C++ exception leaves the library. Any thread may call any
// function except nf_group_close, which must be the last call on a group.
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

// The version of the interface. A program that was built with one minor version runs with every later one of the same
// major version.
#define NF_INTERFACE_MAJOR 1
#define NF_INTERFACE_MINOR 4

// The result of a call. The numbers never change.
typedef enum nf_status {
  NF_OK = 0,
  NF_PENDING = 1,           // not finished yet; no error
  NF_INVALID_ARGUMENT = 2,  // an argument has no meaning
  NF_TIMEOUT = 3,           // the time limit of a wait has passed
  NF_PEER_FAILED = 4,       // another rank died, left or fell silent
  NF_MISMATCH = 5,          // ranks disagree about what they fold
  NF_SYSTEM = 6             // the operating system refused, or memory ran out
} nf_status;

// A failed call fills in this struct. Every `error` argument may be NULL.
typedef struct nf_error {
  nf_status status;
  int rank;        // the rank that caused the error, or -1
  char text[512];  // what happened, which rank it concerns, what to do; zero-terminated, cut if longer
} nf_error;

// Elements in memory.
typedef enum nf_type {
  NF_FLOAT32 = 0,
  NF_FLOAT16 = 1,
  NF_BFLOAT16 = 2,
  NF_INT32 = 3,
  // Since 1.2, among ranks only. They travel as they are.
  NF_FLOAT64 = 4,
  NF_INT8 = 5,
  NF_INT16 = 6,
  NF_INT64 = 7,
  NF_UINT8 = 8,
  NF_UINT16 = 9,
  NF_UINT32 = 10,
  NF_UINT64 = 11
} nf_type;

// How the elements of the ranks are combined. Sums and products of integers wrap. The minimum or maximum with a NaN is
// a NaN. The last three are for integers. Elements travel as they are in all but a sum.
typedef enum nf_operation {
  NF_SUM = 0,
  NF_PRODUCT = 1,
  NF_MIN = 2,
  NF_MAX = 3,
  NF_BIT_AND = 4,
  NF_BIT_OR = 5,
  NF_BIT_XOR = 6
} nf_operation;

// A choice for nf_submit. The function that is named beside each says what it does to `in` and `out`.
typedef enum nf_collective {
  NF_ALL_REDUCE = 0,      // nf_all_reduce
  NF_REDUCE_SCATTER = 1,  // nf_reduce_scatter
  NF_ALL_GATHER = 2,      // nf_all_gather
  NF_BROADCAST = 3,       // nf_broadcast: `in` and `out` are both `memory`
  NF_BARRIER = 4          // nf_barrier: `in` and `out` are NULL, `count` is 0
} nf_collective;

// The format of elements on the wire. NF_AS_IT_IS sends them exactly as they are in memory. NF_AS_BFP is block floating
// point: `block` elements share an exponent and keep mantissas of `mantissa` bits; the default takes 17 bytes for 16
// elements. Integers are sent as they are.
typedef enum nf_format {
  NF_AS_IT_IS = 0,
  NF_AS_FLOAT32 = 1,
  NF_AS_FLOAT16 = 2,
  NF_AS_BFLOAT16 = 3,
  NF_AS_BFP = 4
} nf_format;

// Which thread does the work.
typedef enum nf_placement {
  NF_OWN_THREAD = 0,     // a thread of the group: all-reduces proceed while the program computes
  NF_CALLERS_THREAD = 1  // the thread that waits or tests: the lowest latency, no progress in between
} nf_placement;

// Start from NF_GROUP_OPTIONS_INIT: struct_bytes tells the library which version of this struct the program uses.
typedef struct nf_group_options {
  size_t struct_bytes;
  int rank, world;     // this rank, 0 to world - 1; the number of ranks
  const char* listen;  // "host:port" that the other ranks can reach; port 0: the kernel picks one
  double timeout_s;    // without progress for this time, an all-reduce fails and names the missing rank
  nf_placement placement;
  int core;               // the core of the group's thread; -1: any core
  int use_shared_memory;  // between ranks of one machine; 0: TCP there too
  const char* secret;     // all ranks prove that they know it before one takes data from another; NULL: none
  // Since 1.1. The RoCE endpoint of this rank, "INTERFACE" or "DEVICE,verbs", and after it perhaps ",version=1" (2
  // without it), ",job=NUMBER" (1) and ",one-way" (the switch has one-way messages, and so more collectives than
  // all-reduces). All-reduces then pass a switch that folds RoCE. `listen`, `placement`,
  // `use_shared_memory` and `secret` mean nothing, and nf_group_address is text of at most NF_ADDRESS_BYTES. NULL:
  // ranks fold among themselves.
  const char* roce;
  int roce_group;  // added to the job number: groups of the same ranks that exist at the same time have different ones
  // Since 1.3. 1: all that leaves the machine carries tags under keys that follow from `secret`, so that bytes which
  // others have changed reach no tensor. It is the same on all ranks. RoCE has no tags.
  int require_auth;
  // Since 1.3, and not over RoCE, too. The network interfaces of this machine that carry data to ranks of other
  // machines, such as "eth0,eth1": each carries as much as its rate allows. All ranks name as many. NULL: the one that
  // the routing table says.
  const char* interfaces;
  int tcp_streams;  // TCP connections to each rank of another machine, by each of these interfaces; at most 16 in all
  int dscp;         // 0 to 63, of this rank's packets
  // Since 1.4, and not with `roce`. The smart NIC of this rank: its PCI address, such as "0000:65:00.0", and after it
  // perhaps ",bar=2" and ",offset=0x1000", or the socket of a simulated one; "{rank}" in it stands for the rank. All
  // ranks have one. It runs the all-reduces by "ring", the algorithm of such a group, that sum NF_FLOAT32 which travel
  // as they are or as NF_AS_BFP. Ranks run everything else among themselves. Its frames carry no tags, and `placement`
  // means nothing. NULL: none.
  const char* nic;
} nf_group_options;
#define NF_GROUP_OPTIONS_INIT \
  { sizeof(nf_group_options), 0, 1, "127.0.0.1:0", 30.0, NF_OWN_THREAD, -1, 1, NULL, NULL, 0, 0, NULL, 1, 0, NULL }
#define NF_ADDRESS_BYTES 1024  // with the zero at its end

// How one tensor is folded. The values are the same on every rank. Start from NF_FOLD_OPTIONS_INIT.
typedef struct nf_fold_options {
  size_t struct_bytes;
  nf_format format;
  int average;  // 1: the sum divided by the number of ranks
  const char*
      algorithm;        // "ring", "halving-doubling", ... (`netfold schedule list`); NULL: by size and number of ranks
  int block, mantissa;  // of NF_AS_BFP: 8, 16, 32, 64 or 128 elements; 2 to 7 bits
  int sub_nodes, switches;  // "hdrm": the BiGraph the ranks are in
  int group;                // "hierarchical": ranks of one machine, neighbours in rank order
  const char* between;      // "hierarchical": the algorithm between machines
  // Since 1.2, among ranks only.
  nf_operation operation;    // of an all-reduce or reduce-scatter
  nf_collective collective;  // of nf_submit; every other function has its own
  int root;                  // of a broadcast: the rank whose elements all get
} nf_fold_options;
#define NF_FOLD_OPTIONS_INIT \
  { sizeof(nf_fold_options), NF_AS_IT_IS, 0, NULL, 16, 7, 0, 0, 0, "ring", NF_SUM, NF_ALL_REDUCE, 0 }

typedef struct nf_group nf_group;
typedef uint64_t nf_ticket;

// The most frequent calls. `in` and `out` hold `count` elements of `type` (elements, not bytes). They may be the same
// memory, but must not overlap otherwise. `options` may be NULL, which means NF_FOLD_OPTIONS_INIT.

// Folds, and returns when the sum is in `out`. After a failure `in` is unchanged, also when it is the same memory as
// `out`. The contents of a separate `out` are undefined.
NF_API nf_status nf_all_reduce(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                               const nf_fold_options* options, nf_error* error);

// The following four are blocking, too, and exist since 1.2. With a group over RoCE they return NF_INVALID_ARGUMENT,
// unless the `roce` of every rank has ",one-way".

// Folds world * count elements at `in`. `out` gets this rank's part:
// the rank-th `count` of the sums.
NF_API nf_status nf_reduce_scatter(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                                   const nf_fold_options* options, nf_error* error);
// Writes every rank's `count` elements to `out`, in rank order: world * count elements.
NF_API nf_status nf_all_gather(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                               const nf_fold_options* options, nf_error* error);
// Writes the root's `count` elements at `memory` to every rank's `memory`. A rank that fails may have some of them.
NF_API nf_status nf_broadcast(nf_group* group, void* memory, size_t count, nf_type type, int root, nf_error* error);
// Returns when every rank has called it.
NF_API nf_status nf_barrier(nf_group* group, nf_error* error);

// Submits a tensor and returns at once. `in` and `out` must exist, and the caller must not use them, until the ticket
// is finished. The nf_wait or nf_test that returns a status other than NF_PENDING consumes the ticket.
NF_API nf_status nf_submit(nf_group* group, const void* in, void* out, size_t count, nf_type type,
                           const nf_fold_options* options, nf_ticket* ticket, nf_error* error);
// Waits for at most timeout_s (seconds, up to 1e9), then returns NF_PENDING.
NF_API nf_status nf_wait(nf_group* group, nf_ticket ticket, double timeout_s, nf_error* error);
// Does not wait. With NF_CALLERS_THREAD it makes the progress that is possible at once.
NF_API nf_status nf_test(nf_group* group, nf_ticket ticket, nf_error* error);

// Opens a group and listens. The caller closes `*group`, which is NULL after a failure.
NF_API nf_status nf_group_open(const nf_group_options* options, nf_group** group, nf_error* error);
// "host:port" where this rank listens, with several interfaces one for each of them, or the text that describes its
// RoCE endpoint. It has at most NF_ADDRESS_BYTES. The string belongs to the group
// and is valid until the group is closed.
NF_API const char* nf_group_address(const nf_group* group);
// `addresses` holds one address per rank, in rank order; the call does not keep it. The call blocks until all ranks are
// connected, for at most timeout_s (seconds) and at most the group's own timeout. A group connects once.
NF_API nf_status nf_group_connect(nf_group* group, const char* const* addresses, double timeout_s, nf_error* error);
// Leaves the group and frees it. Unfinished collectives fail on every rank. `reason`, if not NULL, tells the other
// ranks that this rank failed, and why. A NULL group is ignored.
NF_API void nf_group_close(nf_group* group, const char* reason);

// The version of the running library, such as "0.1.0". The string stays valid forever, and so does the next one.
NF_API const char* nf_version(void);
// The name of a status: "ok", "pending", "timeout", ...
NF_API const char* nf_status_name(nf_status status);

#ifdef __cplusplus
}
#endif
