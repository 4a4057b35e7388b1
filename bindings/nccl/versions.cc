// The tables that NCCL looks up, a pair for each version of its interface: thin layers over net.h and coll_net.h.
#include <cstddef>

#include "coll_net.h"
#include "environment.h"
#include "interface.h"
#include "log.h"
#include "net.h"

namespace netfold::nccl {
namespace {

constexpr const char* kName = "Netfold";
constexpr std::size_t kBytesMax = std::size_t{1} << 30;  // of one call: NCCL cuts what is larger
constexpr int kCommunicatorsMax = 65536;
constexpr float kLatencyUs = 20;

// Of the device, in the layout of each version; the texts live as long as the process.
template <class Properties>
Status get_properties(int device, Properties* properties) {
  return guarded([=] {
    const auto& found = environment();
    if (!found) return report(found.error());
    const Nic& nic = found->nics.at(static_cast<std::size_t>(device));
    Properties& filled = *properties = {};
    filled.name = const_cast<char*>(nic.name.c_str());
    filled.pci_path = nic.pci_path.empty() ? nullptr : const_cast<char*>(nic.pci_path.c_str());
    filled.chip = nic.index;
    filled.memory_kinds = kHostMemory;
    filled.speed_mbit_s = nic.speed_mbit_s;
    filled.latency_us = kLatencyUs;
    filled.communicators_max = kCommunicatorsMax;
    filled.receives_max = 1;
    if constexpr (requires { filled.members; }) {
      filled.members.count = 1;
      filled.members.devices[0] = device;
      filled.send_bytes_max = filled.collective_bytes_max = kBytesMax;
    }
    if constexpr (requires { filled.combined_requests_max; }) filled.combined_requests_max = 1;
    if constexpr (requires { filled.rail; }) filled.rail = filled.plane = -1;
    return kSuccess;
  });
}

Status register_memory(void*, void*, std::size_t, int type, void** registration) {
  return net::register_memory(type, registration);
}
Status deregister_memory(void*, void*) {
  return kSuccess;
}
Status accept(void* listener, void** receiver, void**) {
  return net::accept(listener, receiver);
}
Status flush_received(void*, int, void**, int*, void**, void** request) {
  return net::flush(request);
}
Status finalize(void*) {
  return kSuccess;
}

constexpr NetTransfers kTransfers = {
    .isend = [](void* sender, void* data, std::size_t bytes, int, void*, void*,
                void** request) { return net::isend(sender, data, bytes, request); },
    .irecv = [](void* receiver, int count, void** data, std::size_t* bytes, int*, void**, void**,
                void** request) { return net::irecv(receiver, count, data[0], bytes[0], request); },
    .iflush = flush_received,
    .test = net::test,
    .close_send = net::close_send,
    .close_receive = net::close_receive,
    .close_listen = net::close_listen,
    .device_registration = nullptr,
    .receive_consumed = nullptr,
    .make_joined_device = nullptr,
};

template <class Properties>
constexpr NetV11<Properties> net_with_context() {
  return {
      .name = kName,
      .init =
          [](void** context, std::uint64_t, void*, Logger logger, Profiler) {
            *context = nullptr;
            return net::init(logger);
          },
      .devices = net::devices,
      .get_properties = get_properties<Properties>,
      .listen = [](void*, int device, void* handle, void** listener) { return net::listen(device, handle, listener); },
      .connect = [](void*, int device, void* handle, void** sender,
                    void**) { return net::connect(device, handle, sender); },
      .accept = accept,
      .register_memory = register_memory,
      .register_dma_buffer = nullptr,
      .deregister_memory = deregister_memory,
      .transfers = kTransfers,
      .finalize = finalize,
      .set_attributes = nullptr,
  };
}

Status listen_for_job(int, void* handle, void** listener) {
  return coll_net::listen(handle, listener);
}

constexpr CollNetConnections kConnections = {
    .connect = [](void* handles[], int ranks, int rank, void*,
                  void** communicator) { return coll_net::connect(handles, ranks, rank, communicator); },
    .reduce_support = coll_net::reduce_support,
    .register_memory = register_memory,
    .register_dma_buffer = nullptr,
    .deregister_memory = deregister_memory,
};

template <class Count>
constexpr CollNetTransfers<Count> kCollNetTransfers = {
    .iallreduce =
        [](void* communicator, void* in, void* out, Count count, DataType type, Operation operation, void*, void*,
           void** request) {
          return coll_net::iallreduce(communicator, in, out, static_cast<std::size_t>(count), type, operation, request);
        },
    .iallgather = nullptr,  // NCCL then gathers over ncclNet
    .ireducescatter = nullptr,
    .iflush = [](void*, void*, int, void*, void** request) { return net::flush(request); },
    .test = coll_net::test,
    .close_communicator = coll_net::close_communicator,
    .close_listen = [](void*) { return kSuccess; },
};

template <class Properties>
constexpr CollNetV11<Properties> coll_net_with_context() {
  return {
      .name = kName,
      .init =
          [](void** context, std::uint64_t, Logger logger) {
            *context = nullptr;
            return coll_net::init(logger);
          },
      .devices = coll_net::devices,
      .get_properties = get_properties<Properties>,
      .listen = [](void*, int device, void* handle,
                   void** listener) { return listen_for_job(device, handle, listener); },
      .connections = kConnections,
      .transfers = kCollNetTransfers<std::size_t>,
      .make_joined_device = nullptr,
      .finalize = finalize,
  };
}

}  // namespace
}  // namespace netfold::nccl

extern "C" {
using namespace netfold::nccl;

extern const NetV8 ncclNetPlugin_v8;
extern const NetV10 ncclNetPlugin_v10;
extern const NetV11<PropertiesV11> ncclNetPlugin_v11;
extern const NetV11<PropertiesV12> ncclNetPlugin_v12;
extern const CollNetV8 ncclCollNetPlugin_v8;
extern const CollNetV10 ncclCollNetPlugin_v10;
extern const CollNetV11<PropertiesV11> ncclCollNetPlugin_v11;
extern const CollNetV11<PropertiesV12> ncclCollNetPlugin_v12;

const NetV8 ncclNetPlugin_v8 = {
    .name = kName,
    .init = net::init,
    .devices = net::devices,
    .get_properties = get_properties<PropertiesV8>,
    .listen = net::listen,
    .connect = [](int device, void* handle, void** sender, void**) { return net::connect(device, handle, sender); },
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buffer = nullptr,
    .deregister_memory = deregister_memory,
    .isend = [](void* sender, void* data, int bytes, int, void*,
                void** request) { return net::isend(sender, data, static_cast<std::size_t>(bytes), request); },
    .irecv =
        [](void* receiver, int count, void** data, int* bytes, int*, void**, void** request) {
          return net::irecv(receiver, count, data[0], static_cast<std::size_t>(bytes[0]), request);
        },
    .iflush = flush_received,
    .test = net::test,
    .close_send = net::close_send,
    .close_receive = net::close_receive,
    .close_listen = net::close_listen,
    .device_registration = nullptr,
    .receive_consumed = nullptr,
};
const NetV10 ncclNetPlugin_v10 = {
    .name = kName,
    .init = [](Logger logger, Profiler) { return net::init(logger); },
    .devices = net::devices,
    .get_properties = get_properties<PropertiesV10>,
    .listen = net::listen,
    .connect = [](int device, void*, void* handle, void** sender,
                  void**) { return net::connect(device, handle, sender); },
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buffer = nullptr,
    .deregister_memory = deregister_memory,
    .transfers = kTransfers,
};
const NetV11<PropertiesV11> ncclNetPlugin_v11 = net_with_context<PropertiesV11>();
const NetV11<PropertiesV12> ncclNetPlugin_v12 = net_with_context<PropertiesV12>();

const CollNetV8 ncclCollNetPlugin_v8 = {
    .name = kName,
    .init = coll_net::init,
    .devices = coll_net::devices,
    .get_properties = get_properties<PropertiesV8>,
    .listen = listen_for_job,
    .connections = kConnections,
    .transfers = kCollNetTransfers<int>,
};
const CollNetV10 ncclCollNetPlugin_v10 = {
    .name = kName,
    .init = coll_net::init,
    .devices = coll_net::devices,
    .get_properties = get_properties<PropertiesV10>,
    .listen = listen_for_job,
    .connections = kConnections,
    .transfers = kCollNetTransfers<std::size_t>,
    .make_joined_device = nullptr,
};
const CollNetV11<PropertiesV11> ncclCollNetPlugin_v11 = coll_net_with_context<PropertiesV11>();
const CollNetV11<PropertiesV12> ncclCollNetPlugin_v12 = coll_net_with_context<PropertiesV12>();
}
