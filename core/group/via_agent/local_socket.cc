#include "group/via_agent/local_socket.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/json.h"
#include "base/wakeup.h"
#include "link/local_socket.h"

namespace netfold::group {
namespace {

constexpr std::size_t kMessageBytesMax = std::size_t{160} << 10;  // the addresses of some thousand ranks
constexpr Nanoseconds kCallerLookPeriod = 100 * kMillisecond;

}  // namespace

Result<LocalSocket> LocalSocket::connect(const std::string& address) {
  auto descriptor = link::connect_local(address, SOCK_SEQPACKET);
  if (!descriptor) return tl::unexpected(descriptor.error());
  return LocalSocket(std::move(*descriptor));
}

Result<link::Peer> LocalSocket::peer() const {
  const auto peer = link::peer_of(descriptor_);
  if (!peer || peer->pid <= 0) {
    return fail(ErrorCode::kSystem, "the kernel does not say which process connected: is it in another container?");
  }
  return *peer;
}

bool LocalSocket::has_ended() const {
  pollfd ended{descriptor_.get(), POLLRDHUP, 0};
  return poll(&ended, 1, 0) > 0;
}

Result<void> LocalSocket::send(const nlohmann::json& body, const std::vector<int>& descriptors) const {
  const std::string text = json_text(body);
  std::array<iovec, 1> pieces{{{const_cast<char*>(text.data()), text.size()}}};
  if (text.size() <= kMessageBytesMax && link::send_with_descriptors(descriptor_.get(), pieces, descriptors) >= 0) {
    return {};
  }
  return fail(ErrorCode::kSystem, fmt::format("cannot send a message of {} bytes: {}", text.size(),
                                              text.size() > kMessageBytesMax ? "too long" : std::strerror(errno)));
}

Result<std::optional<Message>> LocalSocket::receive() const {
  std::string text(kMessageBytesMax, '\0');
  std::vector<Descriptor> descriptors;
  int flags = 0;
  const ssize_t got =
      link::receive_with_descriptors(descriptor_.get(), std::as_writable_bytes(std::span(text)), descriptors, flags);
  if (got < 0 && link::may_try_again()) return std::nullopt;
  if (got <= 0) return fail(ErrorCode::kSystem, "the other end has closed the connection");
  Message message{parse_json(std::string_view(text.data(), static_cast<std::size_t>(got))), std::move(descriptors)};
  if (!message.body.is_object() || (flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
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

}  // namespace netfold::group
