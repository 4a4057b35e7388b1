#include "link/shm/handover.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "link/shm/local_socket.h"

namespace netfold::link {
namespace {

constexpr int kWaiting = 16;  // strangers that may connect without blocking the right process
constexpr std::size_t kTokenMax = 64;

// A message of one descriptor beside a text.
struct DescriptorMessage {
  iovec text{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> beside{};
  msghdr header{};

  DescriptorMessage(void* data, std::size_t size) : text{data, size} {
    header.msg_iov = &text;
    header.msg_iovlen = 1;
    header.msg_control = beside.data();
    header.msg_controllen = beside.size();
  }
};

// The descriptor that one connection sends, if it sends the token; -1 if not.
int receive_from(int visitor, const std::string& token) {
  std::array<char, kTokenMax> said{};
  DescriptorMessage message(said.data(), said.size());
  const ssize_t got = recvmsg(visitor, &message.header, MSG_CMSG_CLOEXEC);
  int descriptor = -1;
  const cmsghdr* const control = got >= 0 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (control != nullptr && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS &&
      control->cmsg_len == CMSG_LEN(sizeof descriptor)) {
    std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
  }
  if (descriptor >= 0 && std::string_view(said.data(), static_cast<std::size_t>(got)) != token) {
    close(descriptor);
    return -1;
  }
  return descriptor;
}

}  // namespace

FdReceiver::FdReceiver(std::string name, std::string token, int listener)
    : name_(std::move(name)), token_(std::move(token)), listener_(listener) {}

FdReceiver::~FdReceiver() {
  close(listener_);
}

std::unique_ptr<FdReceiver> FdReceiver::open() {
  std::string name = unique_name(), token = unique_name();
  if (token.empty()) return nullptr;
  const int listener = bind_local(SOCK_SEQPACKET, name);
  if (listener < 0) return nullptr;
  auto door = std::unique_ptr<FdReceiver>(new FdReceiver(std::move(name), std::move(token), listener));
  return listen(listener, kWaiting) == 0 ? std::move(door) : nullptr;
}

int FdReceiver::take() const {
  for (;;) {
    const int visitor = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (visitor < 0) return -1;
    const int descriptor = receive_from(visitor, token_);
    close(visitor);
    if (descriptor >= 0) return descriptor;
  }
}

bool send_fd(const std::string& door, const std::string& token, int descriptor) {
  if (token.empty() || token.size() > kTokenMax) return false;
  const int visitor = connect_local(SOCK_SEQPACKET, door);
  if (visitor < 0) return false;
  std::string said = token;
  DescriptorMessage message(said.data(), said.size());
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  const bool is_sent = sendmsg(visitor, &message.header, MSG_NOSIGNAL) == static_cast<ssize_t>(said.size());
  close(visitor);
  return is_sent;
}

}  // namespace netfold::link
