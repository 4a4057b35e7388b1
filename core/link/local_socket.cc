#include "link/local_socket.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace netfold::link {
namespace {

struct LocalAddress {
  sockaddr_un name{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<LocalAddress> parse_local(const std::string& text) {
  LocalAddress address;
  address.name.sun_family = AF_UNIX;
  if (text.size() < 2 || text.size() >= sizeof address.name.sun_path) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not the address of a socket: give a path or @name "
                                                         "of at most {} bytes",
                                                         text, sizeof address.name.sun_path - 1));
  }
  text.copy(address.name.sun_path, text.size());
  const bool is_abstract = text[0] == '@';
  if (is_abstract) address.name.sun_path[0] = '\0';
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? std::size_t{0} : 1));
  return address;
}

Descriptor new_local_socket(int type) {
  return Descriptor(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

Result<Descriptor> connect_local(const std::string& address, int type) {
  const auto where = parse_local(address);
  if (!where) return tl::unexpected(where.error());
  Descriptor descriptor = new_local_socket(type);
  if (::connect(descriptor.get(), where->get(), where->size) != 0) {
    return tl::unexpected(system_error(fmt::format("cannot reach {}", address)));
  }
  return descriptor;
}

Result<LocalListener> LocalListener::at(const std::string& address, int type) {
  const auto where = parse_local(address);
  if (!where) return tl::unexpected(where.error());
  const bool is_path = address[0] != '@';
  struct stat status {};
  if (is_path && stat(address.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) && !connect_local(address, type)) {
    unlink(address.c_str());
  }
  Descriptor descriptor = new_local_socket(type);
  const mode_t mask = umask(0077);
  const bool is_bound = bind(descriptor.get(), where->get(), where->size) == 0;
  const int error = errno;
  umask(mask);
  if (!is_bound || listen(descriptor.get(), SOMAXCONN) != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot listen at {}: {}", address,
                            error == EADDRINUSE ? "another program is there" : std::strerror(error)));
  }
  return LocalListener(address, std::move(descriptor));
}

LocalListener::~LocalListener() {
  if (descriptor_.get() >= 0 && address_[0] != '@') unlink(address_.c_str());
}

std::optional<Descriptor> LocalListener::accept() const {
  Descriptor descriptor(accept4(descriptor_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (descriptor.get() < 0) return std::nullopt;
  return descriptor;
}

std::optional<Peer> peer_of(const Descriptor& socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return Peer{credentials.pid, credentials.uid};
}

ssize_t send_with_descriptors(int socket, std::span<iovec> pieces, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> room{};
  msghdr header{};
  header.msg_iov = pieces.data();
  header.msg_iovlen = pieces.size();
  if (!descriptors.empty()) {
    header.msg_control = room.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL);
}

ssize_t receive_with_descriptors(int socket, std::span<std::byte> into, std::vector<Descriptor>& descriptors,
                                 int& flags) {
  iovec data{into.data(), into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> room{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = room.data();
  header.msg_controllen = room.size();
  const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  flags = got < 0 ? 0 : header.msg_flags;
  if (got < 0) return got;
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> numbers(count);
    std::memcpy(numbers.data(), CMSG_DATA(each), count * sizeof(int));
    for (const int number : numbers) descriptors.emplace_back(number);
  }
  return got;
}

}  // namespace netfold::link
