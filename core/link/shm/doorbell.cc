#include "link/shm/doorbell.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace netfold::link {
namespace {

// An abstract address begins with a zero byte.
bool apply(int (*bind_or_connect)(int, const sockaddr*, socklen_t), int descriptor, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  name.copy(address.sun_path + 1, name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return bind_or_connect(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

}  // namespace

std::string unique_name() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != sizeof words) return {};
  return fmt::format("netfold-{:016x}{:016x}", words[0], words[1]);
}

std::shared_ptr<Doorbell> Doorbell::create() {
  auto bell = std::shared_ptr<Doorbell>(
      new Doorbell(unique_name(), socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  const int on = 1;
  setsockopt(bell->descriptor_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);  // who gives us descriptors
  return apply(&bind, bell->descriptor_, bell->name_) ? bell : nullptr;
}

std::shared_ptr<Doorbell> Doorbell::find(const std::string& name) {
  auto bell =
      std::shared_ptr<Doorbell>(new Doorbell(name, socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  return apply(&connect, bell->descriptor_, bell->name_) ? bell : nullptr;
}

Doorbell::~Doorbell() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Doorbell::ring() const {
  const char one = 1;
  send(descriptor_, &one, 1, MSG_NOSIGNAL);  // full means: already rung
}

void Doorbell::clear() const {
  char rung;
  while (recv(descriptor_, &rung, 1, 0) == 1) {
  }
}

bool Doorbell::give(int descriptor) const {
  char one = 1;
  iovec data{&one, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return sendmsg(descriptor_, &message, MSG_NOSIGNAL) == 1;
}

int Doorbell::take_descriptor() const {
  char rung;
  iovec data{&rung, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))> room{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  if (recvmsg(descriptor_, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  int descriptor = -1;
  ucred sender{0, static_cast<uid_t>(-1), 0};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    if (header->cmsg_type == SCM_CREDENTIALS) std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
  }
  if (sender.uid == geteuid()) return descriptor;
  if (descriptor >= 0) close(descriptor);
  return -1;
}

}  // namespace netfold::link
