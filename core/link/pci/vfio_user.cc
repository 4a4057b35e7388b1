#include "link/pci/vfio_user.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/wakeup.h"
#include "link/local_socket.h"

namespace netfold::link::vfio_user {
namespace {

tl::unexpected<Error> other_end_is_gone() {
  return fail(ErrorCode::kSystem, "the other end of the device's socket has closed it");
}

}  // namespace

Result<Socket> Socket::connect(const std::string& path) {
  auto descriptor = connect_local(path, SOCK_STREAM);
  if (!descriptor) return tl::unexpected(descriptor.error());
  return Socket(std::move(*descriptor));
}

bool Socket::wait(short events, Nanoseconds deadline) const {
  std::array<pollfd, 1> polls{{{descriptor_.get(), events, 0}}};
  wait_for(polls, deadline);
  return polls[0].revents != 0;
}

Result<void> Socket::send(Header header, std::initializer_list<std::span<const std::byte>> pieces,
                          std::span<const int> descriptors) const {
  header.size_bytes = sizeof header;
  for (const auto piece : pieces) header.size_bytes += static_cast<std::uint32_t>(piece.size());
  std::vector<std::byte> bytes;
  bytes.reserve(header.size_bytes);
  bytes.insert(bytes.end(), bytes_of(header).begin(), bytes_of(header).end());
  for (const auto piece : pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  const Nanoseconds deadline = now() + kPatience;
  for (std::size_t sent = 0; sent < bytes.size();) {
    std::array<iovec, 1> rest{{{bytes.data() + sent, bytes.size() - sent}}};
    const ssize_t some =
        send_with_descriptors(descriptor_.get(), rest, sent == 0 ? descriptors : std::span<const int>());
    if (some < 0 && (errno == EPIPE || errno == ECONNRESET)) return other_end_is_gone();
    if (some < 0 && !may_try_again()) return tl::unexpected(system_error("cannot send to a device's socket"));
    if (some > 0) sent += static_cast<std::size_t>(some);
    if (some < 0 && !wait(POLLOUT, deadline) && now() >= deadline) {
      return fail(ErrorCode::kSystem, "the other end of the device's socket takes no more bytes");
    }
  }
  return {};
}

// False if no byte has come until the deadline. A first byte gives the others kPatience.
Result<bool> Socket::read(std::span<std::byte> into, std::vector<Descriptor>& descriptors, Nanoseconds deadline) const {
  for (std::size_t got = 0; got < into.size();) {
    int flags = 0;
    const ssize_t some = receive_with_descriptors(descriptor_.get(), into.subspan(got), descriptors, flags);
    if (some == 0 || (some < 0 && errno == ECONNRESET)) return other_end_is_gone();
    if (some < 0 && !may_try_again()) return tl::unexpected(system_error("cannot read from a device's socket"));
    if ((flags & MSG_CTRUNC) != 0) return fail(ErrorCode::kSystem, "too many descriptors came by a device's socket");
    if (some > 0) {
      if (got == 0) deadline = std::max(deadline, now() + kPatience);
      got += static_cast<std::size_t>(some);
    } else if (!wait(POLLIN, deadline) && now() >= deadline) {
      if (got == 0) return false;
      return fail(ErrorCode::kSystem, "a message by a device's socket broke off");
    }
  }
  return true;
}

Result<std::optional<Message>> Socket::receive(Nanoseconds deadline) const {
  Message message;
  const auto header = std::as_writable_bytes(std::span(&message.header, 1));
  const auto begun = read(header, message.descriptors, deadline);
  if (!begun) return tl::unexpected(begun.error());
  if (!*begun) return std::nullopt;
  const std::size_t size_bytes = message.header.size_bytes;
  if (size_bytes < sizeof(Header) || size_bytes > sizeof(Header) + kBodyBytesMax) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("a message of {} bytes came by a device's socket: it does not speak vfio-user", size_bytes));
  }
  message.body.resize(size_bytes - sizeof(Header));
  const auto all = read(message.body, message.descriptors, now() + kPatience);
  if (!all) return tl::unexpected(all.error());
  if (!*all) return fail(ErrorCode::kSystem, "a message by a device's socket broke off");
  return message;
}

}  // namespace netfold::link::vfio_user
