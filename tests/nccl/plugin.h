// The plugin as the tests call it: opened with dlopen, its tables found by version, as NCCL does it.
#pragma once

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "interface.h"

namespace netfold::nccl::testing {

// The calls of one version, without the arguments that only other versions have.
struct Plugin {
  std::function<Status(Logger)> init, init_collectives;
  std::function<Status(int*)> devices, collective_devices;
  std::function<Status(int, PropertiesV12*)> properties;
  std::function<Status(int, void*, void**)> listen, listen_for_job;
  std::function<Status(int, void*, void**)> connect;
  std::function<Status(void*, void**)> accept;
  std::function<Status(void*, int, void**)> register_memory;
  std::function<Status(void*, void*, std::size_t, void**)> isend, irecv;
  std::function<Status(void*, int*, int*)> test, test_collective;
  std::function<Status(void*)> close_send, close_receive, close_listen, close_communicator;
  std::function<Status(void**, int, int, void*, void**)> join;
  std::function<Status(DataType, Operation, int*)> reduce_support;
  std::function<Status(void*, void*, void*, std::size_t, DataType, Operation, void**)> iallreduce;
  bool has_gather = false, has_dma = false;
};

inline void print_log(LogLevel level, unsigned long, const char*, int, const char* format, ...) {
  std::fputs(level == kLogWarn ? "WARN " : "INFO ", stderr);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
}

template <class Table>
const Table& find(void* library, const std::string& name) {
  const auto* const found = static_cast<const Table*>(dlsym(library, name.c_str()));
  if (found == nullptr) std::printf("no symbol %s\n", name.c_str()), std::exit(2);
  return *found;
}

template <class Net, class Properties>
void fill_common(Plugin& plugin, const Net& net) {
  plugin.devices = net.devices;
  plugin.properties = [&net](int device, PropertiesV12* out) {
    Properties found{};
    const Status status = net.get_properties(device, &found);
    *out = {};
    out->name = found.name;
    out->memory_kinds = found.memory_kinds;
    out->speed_mbit_s = found.speed_mbit_s;
    out->receives_max = found.receives_max;
    if constexpr (requires { found.members; }) out->collective_bytes_max = found.collective_bytes_max;
    return status;
  };
  plugin.accept = [&net](void* listener, void** receiver) { return net.accept(listener, receiver, nullptr); };
  plugin.register_memory = [&net](void* communicator, int type, void** registration) {
    return net.register_memory(communicator, communicator, 1, type, registration);
  };
  plugin.has_dma = net.register_dma_buffer != nullptr;
}

inline void fill_transfers(Plugin& plugin, const NetTransfers& net) {
  plugin.isend = [&net](void* sender, void* data, std::size_t bytes, void** request) {
    return net.isend(sender, data, bytes, 0, nullptr, nullptr, request);
  };
  plugin.irecv = [&net](void* receiver, void* data, std::size_t bytes, void** request) {
    int tag = 0;
    void* none = nullptr;
    return net.irecv(receiver, 1, &data, &bytes, &tag, &none, &none, request);
  };
  plugin.test = net.test;
  plugin.close_send = net.close_send;
  plugin.close_receive = net.close_receive;
  plugin.close_listen = net.close_listen;
}

template <class CollNet>
void fill_collectives(Plugin& plugin, const CollNet& net) {
  plugin.collective_devices = net.devices;
  plugin.join = net.connections.connect;
  plugin.reduce_support = net.connections.reduce_support;
  plugin.iallreduce = [&net](void* communicator, void* in, void* out, std::size_t count, DataType type,
                             Operation operation, void** request) {
    using Count = std::remove_const_t<std::conditional_t<std::is_same_v<CollNet, CollNetV8>, int, std::size_t>>;
    return net.transfers.iallreduce(communicator, in, out, static_cast<Count>(count), type, operation, nullptr, nullptr,
                                    request);
  };
  plugin.test_collective = net.transfers.test;
  plugin.close_communicator = net.transfers.close_communicator;
  plugin.has_gather = net.transfers.iallgather != nullptr;
}

template <class Properties>
Plugin with_context(void* library, const std::string& version) {
  Plugin plugin;
  const auto& net = find<NetV11<Properties>>(library, "ncclNetPlugin_v" + version);
  const auto& coll = find<CollNetV11<Properties>>(library, "ncclCollNetPlugin_v" + version);
  plugin.init = [&net](Logger logger) {
    void* context = nullptr;
    return net.init(&context, 1, nullptr, logger, nullptr);
  };
  plugin.init_collectives = [&coll](Logger logger) {
    void* context = nullptr;
    return coll.init(&context, 1, logger);
  };
  plugin.listen = [&net](int device, void* handle, void** out) { return net.listen(nullptr, device, handle, out); };
  plugin.connect = [&net](int device, void* handle, void** out) {
    return net.connect(nullptr, device, handle, out, nullptr);
  };
  plugin.listen_for_job = [&coll](int device, void* handle, void** out) {
    return coll.listen(nullptr, device, handle, out);
  };
  fill_common<NetV11<Properties>, Properties>(plugin, net);
  fill_transfers(plugin, net.transfers);
  fill_collectives(plugin, coll);
  return plugin;
}

inline Plugin open_plugin(const std::string& path, const std::string& version) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::printf("%s\n", dlerror()), std::exit(2);
  if (version == "12") return with_context<PropertiesV12>(library, version);
  if (version == "11") return with_context<PropertiesV11>(library, version);
  Plugin plugin;
  if (version == "10") {
    const auto& net = find<NetV10>(library, "ncclNetPlugin_v10");
    const auto& coll = find<CollNetV10>(library, "ncclCollNetPlugin_v10");
    plugin.init = [&net](Logger logger) { return net.init(logger, nullptr); };
    plugin.init_collectives = coll.init;
    plugin.listen = net.listen;
    plugin.connect = [&net](int device, void* handle, void** out) {
      return net.connect(device, nullptr, handle, out, nullptr);
    };
    plugin.listen_for_job = coll.listen;
    fill_common<NetV10, PropertiesV10>(plugin, net);
    fill_transfers(plugin, net.transfers);
    fill_collectives(plugin, coll);
    return plugin;
  }
  const auto& net = find<NetV8>(library, "ncclNetPlugin_v8");
  const auto& coll = find<CollNetV8>(library, "ncclCollNetPlugin_v8");
  plugin.init = net.init;
  plugin.init_collectives = coll.init;
  plugin.listen = net.listen;
  plugin.connect = [&net](int device, void* handle, void** out) { return net.connect(device, handle, out, nullptr); };
  plugin.listen_for_job = coll.listen;
  fill_common<NetV8, PropertiesV8>(plugin, net);
  plugin.isend = [&net](void* sender, void* data, std::size_t bytes, void** request) {
    return net.isend(sender, data, static_cast<int>(bytes), 0, nullptr, request);
  };
  plugin.irecv = [&net](void* receiver, void* data, std::size_t bytes, void** request) {
    int tag = 0, size = static_cast<int>(bytes);
    void* none = nullptr;
    return net.irecv(receiver, 1, &data, &size, &tag, &none, request);
  };
  plugin.test = net.test;
  plugin.close_send = net.close_send;
  plugin.close_receive = net.close_receive;
  plugin.close_listen = net.close_listen;
  fill_collectives(plugin, coll);
  return plugin;
}

}  // namespace netfold::nccl::testing
