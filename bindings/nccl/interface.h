// The interface between NCCL and a network plugin: versions 8, 10, 11 and 12 of the tables `ncclNetPlugin_v<N>` and
// `ncclCollNetPlugin_v<N>`. NCCL 2.30 looks for 12 first. Only layouts, the order of members and the values of
// enumerators matter; the names are ours. NCCL calls every function from its own threads, and one communicator from one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace netfold::nccl {

enum Status : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum Operation : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

enum LogLevel : int { kLogWarn = 2, kLogInfo = 3 };
constexpr unsigned long kLogInit = 1, kLogNet = 16;
using Logger = void (*)(LogLevel level, unsigned long parts, const char* where, int line, const char* format, ...);
using Profiler = Status (*)(void** event, int type, void* parent, std::int64_t plugin, void* data);

constexpr std::size_t kHandleBytes = 128;  // of what listen() fills in and connect() gets
constexpr int kRequestsMax = 32;           // in flight on one communicator
constexpr int kHostMemory = 1;             // a bit of Properties::memory_kinds, and a value of a registration's `type`

// Devices that NCCL joins into one; each device is its own only member here.
template <int kMost>
struct Members {
  int count;
  int devices[kMost];
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  std::uint64_t chip;  // devices with one number share a port
  int memory_kinds;
  int registers_globally;
  int speed_mbit_s;
  int port;
  float latency_us;
  int communicators_max;
  int receives_max;  // that one irecv() may combine
  int offload_kind, offload_version;
};

template <int kMembersMax>
struct PropertiesOf {
  char* name;
  char* pci_path;
  std::uint64_t chip;
  int memory_kinds;
  int registers_globally;
  int forces_flush;
  int speed_mbit_s;
  int port;
  float latency_us;
  int communicators_max;
  int receives_max;
  int offload_kind, offload_version;
  Members<kMembersMax> members;
  std::size_t send_bytes_max, collective_bytes_max;
};
using PropertiesV10 = PropertiesOf<4>;

struct PropertiesV11 : PropertiesV10 {
  int combined_requests_max;
};

struct PropertiesV12 : PropertiesOf<8> {
  int combined_requests_max;
  std::int16_t rail, plane;
};

// --- Point to point ---

struct NetV8 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV8* properties);
  Status (*listen)(int device, void* handle, void** listener);
  Status (*connect)(int device, void* handle, void** sender, void** offload);
  Status (*accept)(void* listener, void** receiver, void** offload);
  Status (*register_memory)(void* communicator, void* data, std::size_t bytes, int type, void** registration);
  Status (*register_dma_buffer)(void* communicator, void* data, std::size_t bytes, int type, std::uint64_t offset,
                                int descriptor, void** registration);
  Status (*deregister_memory)(void* communicator, void* registration);
  Status (*isend)(void* sender, void* data, int bytes, int tag, void* registration, void** request);
  Status (*irecv)(void* receiver, int count, void** data, int* bytes, int* tags, void** registrations, void** request);
  Status (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations, void** request);
  Status (*test)(void* request, int* is_done, int* bytes);
  Status (*close_send)(void* sender);
  Status (*close_receive)(void* receiver);
  Status (*close_listen)(void* listener);
  Status (*device_registration)(void* communicator, void* registration, void** on_device);
  Status (*receive_consumed)(void* receiver, int count, void* request);
};

// The members that versions 10, 11 and 12 have in common, from isend() on.
struct NetTransfers {
  Status (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* registration, void* event,
                  void** request);
  Status (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags, void** registrations,
                  void** events, void** request);
  Status (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations, void** request);
  Status (*test)(void* request, int* is_done, int* bytes);
  Status (*close_send)(void* sender);
  Status (*close_receive)(void* receiver);
  Status (*close_listen)(void* listener);
  Status (*device_registration)(void* communicator, void* registration, void** on_device);
  Status (*receive_consumed)(void* receiver, int count, void* request);
  Status (*make_joined_device)(int* device, void* members);
};

struct NetV10 {
  const char* name;
  Status (*init)(Logger logger, Profiler profiler);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV10* properties);
  Status (*listen)(int device, void* handle, void** listener);
  Status (*connect)(int device, void* config, void* handle, void** sender, void** offload);
  Status (*accept)(void* listener, void** receiver, void** offload);
  Status (*register_memory)(void* communicator, void* data, std::size_t bytes, int type, void** registration);
  Status (*register_dma_buffer)(void* communicator, void* data, std::size_t bytes, int type, std::uint64_t offset,
                                int descriptor, void** registration);
  Status (*deregister_memory)(void* communicator, void* registration);
  NetTransfers transfers;
};

template <class Properties>  // of version 11 or 12
struct NetV11 {
  const char* name;
  Status (*init)(void** context, std::uint64_t communicator, void* config, Logger logger, Profiler profiler);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, Properties* properties);
  Status (*listen)(void* context, int device, void* handle, void** listener);
  Status (*connect)(void* context, int device, void* handle, void** sender, void** offload);
  Status (*accept)(void* listener, void** receiver, void** offload);
  Status (*register_memory)(void* communicator, void* data, std::size_t bytes, int type, void** registration);
  Status (*register_dma_buffer)(void* communicator, void* data, std::size_t bytes, int type, std::uint64_t offset,
                                int descriptor, void** registration);
  Status (*deregister_memory)(void* communicator, void* registration);
  NetTransfers transfers;
  Status (*finalize)(void* context);
  Status (*set_attributes)(void* context, void* attributes);
};

// --- Collectives in the network ---

// From connect() to deregister_memory(), in every version.
struct CollNetConnections {
  Status (*connect)(void* handles[], int ranks, int rank, void* listener, void** communicator);
  Status (*reduce_support)(DataType type, Operation operation, int* is_supported);
  Status (*register_memory)(void* communicator, void* data, std::size_t bytes, int type, void** registration);
  Status (*register_dma_buffer)(void* communicator, void* data, std::size_t bytes, int type, std::uint64_t offset,
                                int descriptor, void** registration);
  Status (*deregister_memory)(void* communicator, void* registration);
};

// From iallreduce() to close_listen(); its count is an int in version 8, a std::size_t later.
template <class Count>
struct CollNetTransfers {
  Status (*iallreduce)(void* communicator, void* in, void* out, Count count, DataType type, Operation operation,
                       void* in_registration, void* out_registration, void** request);
  Status (*iallgather)(void* communicator, void* in, int parts, void* out_parts, std::size_t rank_bytes,
                       std::size_t window_offset, std::size_t window_bytes, void* registration, void** request);
  Status (*ireducescatter)(void* communicator, int parts, void* in_parts, void* out, std::size_t rank_bytes,
                           std::size_t window_offset, std::size_t window_bytes, DataType type, Operation operation,
                           void* registration, void** request);
  Status (*iflush)(void* communicator, void* data, int bytes, void* registration, void** request);
  Status (*test)(void* request, int* is_done, int* bytes);
  Status (*close_communicator)(void* communicator);
  Status (*close_listen)(void* listener);
};

struct CollNetV8 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV8* properties);
  Status (*listen)(int device, void* handle, void** listener);
  CollNetConnections connections;
  CollNetTransfers<int> transfers;
};

struct CollNetV10 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV10* properties);
  Status (*listen)(int device, void* handle, void** listener);
  CollNetConnections connections;
  CollNetTransfers<std::size_t> transfers;
  Status (*make_joined_device)(int* device, void* members);
};

template <class Properties>  // of version 11 or 12
struct CollNetV11 {
  const char* name;
  Status (*init)(void** context, std::uint64_t communicator, Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, Properties* properties);
  Status (*listen)(void* context, int device, void* handle, void** listener);
  CollNetConnections connections;
  CollNetTransfers<std::size_t> transfers;
  Status (*make_joined_device)(int* device, void* members);
  Status (*finalize)(void* context);
};

}  // namespace netfold::nccl
