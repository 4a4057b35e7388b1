#include "group/via_agent/local_socket.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/json.h"
#include "base/wakeup.h"

namespace netfold::group {
namespace {

constexpr std::size_t kMessageBytesMax = std::size_t{160} << 10;  // the addresses of some thousand ranks
constexpr std::size_t kDescriptorsMax = 8;
constexpr Nanoseconds kCallerLookPeriod = 100 * kMillisecond;

struct SocketAddress {
  sockaddr_un name{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<SocketAddress> parse(const std::string& text) {
  SocketAddress address;
  address.name.sun_family = AF_UNIX;
  if (text.size() < 2 || text.size() >= sizeof address.name.sun_path) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an address of an agent: give a path or @name of at most {} bytes", text,
                            sizeof address.name.sun_path - 1));
  }
  text.copy(address.name.sun_path, text.size());
  const bool is_abstract = text[0] == '@';
  if (is_abstract) address.name.sun_path[0] = '\0';
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? std::size_t{0} : 1));
  return address;
}

Descriptor new_socket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

std::vector<Descriptor> descriptors_of(msghdr& header) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> numbers(count);
    std::memcpy(numbers.data(), CMSG_DATA(each), count * sizeof(int));
    for (const int number : numbers) descriptors.emplace_back(number);
  }
  return descriptors;
}

}  // namespace

Result<LocalSocket> LocalSocket::connect(const std::string& address) {
  const auto where = parse(address);
  if (!where) return tl::unexpected(where.error());
  Descriptor descriptor = new_socket();
  if (::connect(descriptor.get(), where->get(), where->size) != 0) {
    return tl::unexpected(system_error(fmt::format("cannot reach {}", address)));
  }
  return LocalSocket(std::move(descriptor));
}

Result<Peer> LocalSocket::peer() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(descriptor_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.pid <= 0) {
    return fail(ErrorCode::kSystem, "the kernel does not say which process connected: is it in another container?");
  }
  return Peer{credentials.pid, credentials.uid};
}

bool LocalSocket::has_ended() const {
  pollfd ended{descriptor_.get(), POLLRDHUP, 0};
  return poll(&ended, 1, 0) > 0;
}

Result<void> LocalSocket::send(const nlohmann::json& body, const std::vector<int>& descriptors) const {
  const std::string text = json_text(body);
  iovec data{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> room{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = room.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  if (text.size() <= kMessageBytesMax && sendmsg(descriptor_.get(), &header, MSG_NOSIGNAL) >= 0) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot send a message of {} bytes: {}", text.size(),
                                              text.size() > kMessageBytesMax ? "too long" : std::strerror(errno)));
}

Result<std::optional<Message>> LocalSocket::receive() const {
  std::string text(kMessageBytesMax, '\0');
  iovec data{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> room{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = room.data();
  header.msg_controllen = room.size();
  const ssize_t got = recvmsg(descriptor_.get(), &header, MSG_CMSG_CLOEXEC);
  if (got < 0 && link::may_try_again()) return std::nullopt;
  if (got <= 0) return fail(ErrorCode::kSystem, "the other end has closed the connection");
  Message message{parse_json(std::string_view(text.data(), static_cast<std::size_t>(got))), descriptors_of(header)};
  if (!message.body.is_object() || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(ErrorCode::kSystem, "the other end sent something that is not a message");
  }
  return message;
}

Result<Message> LocalSocket::await(Nanoseconds deadline, const std::function<bool()>& keep_going) const {
  for (;;) {
    auto message = receive();
    if (!message) return tl::unexpected(message.error());
    if (*message) return std::move(**message);
    const Nanoseconds time = now();
    if (time >= deadline) return fail(ErrorCode::kTimeout, "no answer came in time");
    if (keep_going && !keep_going()) return fail(ErrorCode::kSystem, "interrupted");
    std::array<pollfd, 1> descriptors{{{descriptor_.get(), POLLIN, 0}}};
    wait_for(descriptors, std::min(deadline, time + kCallerLookPeriod));
  }
}

Result<LocalListener> LocalListener::at(const std::string& address) {
  const auto where = parse(address);
  if (!where) return tl::unexpected(where.error());
  const bool is_path = address[0] != '@';
  struct stat status {};
  if (is_path && stat(address.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) && !LocalSocket::connect(address)) {
    unlink(address.c_str());
  }
  Descriptor descriptor = new_socket();
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

std::optional<LocalSocket> LocalListener::accept() const {
  Descriptor descriptor(accept4(descriptor_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (descriptor.get() < 0) return std::nullopt;
  return LocalSocket(std::move(descriptor));
}

}  // namespace netfold::group
