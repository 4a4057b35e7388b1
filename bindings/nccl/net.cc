#include "net.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "environment.h"
#include "handshake.h"
#include "log.h"
#include "stripes.h"

namespace netfold::nccl::net {
namespace {

// NCCL calls connect() with one handle again and again. The handle's token finds the connection that is under way.
std::mutex connecting_mutex;
std::map<control::Nonce, std::unique_ptr<Connecting>> under_way;

std::unique_ptr<Connecting> take_connecting(const Handle& handle, const Nic& nic, const Settings& settings) {
  const std::lock_guard lock(connecting_mutex);
  std::erase_if(under_way, [](const auto& each) { return each.second->is_late(); });  // NCCL has given them up
  auto found = under_way.extract(handle.token);
  return found ? std::move(found.mapped()) : std::make_unique<Connecting>(handle, nic, settings);
}

void put_back(const Handle& handle, std::unique_ptr<Connecting> connecting) {
  const std::lock_guard lock(connecting_mutex);
  under_way.emplace(handle.token, std::move(connecting));
}

Status misused(const std::string& text) {
  warn(text);
  return kInternalError;
}

template <class Connections>
Status post(void* connections, void* data, std::size_t bytes, void** request) {
  *request = static_cast<Connections*>(connections)->post(data, bytes);
  return kSuccess;
}

template <class Thing>
Status close(void* thing) {
  return guarded([thing] {
    delete static_cast<Thing*>(thing);
    return kSuccess;
  });
}

}  // namespace

Status init(Logger logger) {
  return guarded([logger] {
    set_logger(logger);
    const auto& found = environment();
    if (!found) return report(found.error());
    std::string names;
    for (const Nic& nic : found->nics) names += " " + nic.name;
    inform(fmt::format("uses{}, {} TCP connections to each peer", names, found->settings.streams));
    return kSuccess;
  });
}

Status devices(int* count) {
  const auto& found = environment();
  *count = found ? static_cast<int>(found->nics.size()) : 0;
  return kSuccess;
}

Status listen(int device, void* handle, void** listener) {
  return guarded([=] {
    const auto& found = environment();
    if (!found) return report(found.error());
    auto opened = Listener::open(found->nics.at(static_cast<std::size_t>(device)), found->settings);
    if (!opened) return report(opened.error());
    (*opened)->handle().write(HandleBytes(static_cast<std::byte*>(handle), kHandleBytes));
    *listener = opened->release();
    return kSuccess;
  });
}

Status connect(int device, void* handle, void** sender) {
  return guarded([=] {
    *sender = nullptr;
    const auto& found = environment();
    if (!found) return report(found.error());
    const auto read = Handle::read(HandleBytes(static_cast<std::byte*>(handle), kHandleBytes));
    if (!read) return misused("this handle is of another network plugin: use the same NCCL_NET_PLUGIN on all ranks");
    auto connecting = take_connecting(*read, found->nics.at(static_cast<std::size_t>(device)), found->settings);
    auto connected = connecting->pump();
    if (!connected) return report(connected.error());
    if (!*connected) put_back(*read, std::move(connecting));
    *sender = connected->release();
    return kSuccess;
  });
}

Status accept(void* listener, void** receiver) {
  return guarded([=] {
    *receiver = nullptr;
    auto accepted = static_cast<Listener*>(listener)->accept();
    if (!accepted) return report(accepted.error());
    *receiver = accepted->release();
    return kSuccess;
  });
}

Status isend(void* sender, void* data, std::size_t bytes, void** request) {
  return post<Sender>(sender, data, bytes, request);
}

Status irecv(void* receiver, int count, void* data, std::size_t bytes, void** request) {
  if (count != 1) return misused("a receive takes one buffer");
  return post<Receiver>(receiver, data, bytes, request);
}

Status test(void* request, int* is_done, int* bytes) {
  return guarded([=] {
    *is_done = 0;
    auto* const tested = static_cast<Request*>(request);
    const auto done = tested->owner->test(*tested);
    if (!done) return report(done.error());
    *is_done = *done ? 1 : 0;
    if (*done && bytes != nullptr) *bytes = static_cast<int>(tested->moved);
    return kSuccess;
  });
}

Status close_send(void* sender) {
  return close<Sender>(sender);
}
Status close_receive(void* receiver) {
  return close<Receiver>(receiver);
}
Status close_listen(void* listener) {
  return close<Listener>(listener);
}

Status register_memory(int type, void** registration) {
  *registration = nullptr;
  return type == kHostMemory ? kSuccess : misused("memory of a GPU cannot be registered: NCCL copies it to the host");
}

Status flush(void** request) {
  *request = nullptr;
  return kSuccess;
}

}  // namespace netfold::nccl::net
