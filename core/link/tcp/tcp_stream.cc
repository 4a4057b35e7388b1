#include "link/tcp/tcp_stream.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link/tcp/buffered_stream.h"
#include "link/tcp/pacing.h"
#include "link/tcp/striped_stream.h"

namespace netfold::link {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // each direction
// To and from the kernel in one call. With more, the other side begins later, and bytes leave the cache before they are
// worked on.
constexpr std::size_t kAtOnce = std::size_t{64} << 10;

class TcpStream final : public BufferedStream {
 public:
  TcpStream(Descriptor socket, std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in)
      : BufferedStream(std::move(out), std::move(in)), socket_(std::move(socket)) {}

  void add_polls(std::vector<pollfd>& polls) const override {
    const auto events = static_cast<short>((is_armed_for_data_ ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0));
    if (events != 0) polls.push_back({socket_.get(), events, 0});
  }

 private:
  void send_some() override {
    while (out_.used() > 0 && !is_broken_) {
      const ssize_t sent = send(socket_.get(), out_.first_used(), std::min(out_.used(), kAtOnce), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && may_try_again()) return;
      if (sent < 0) return lose(errno);
      out_.tail += static_cast<std::uint64_t>(sent);
      stats_.sent_bytes += static_cast<std::uint64_t>(sent);
    }
  }

  void receive_some() override {
    while (in_.free() > 0 && !is_broken_) {
      const ssize_t got = recv(socket_.get(), in_.first_free(), std::min(in_.free(), kAtOnce), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && may_try_again()) return;
      if (got < 0) return lose(errno);
      if (got == 0) ended_ = "closed its connection";
      in_.head += static_cast<std::uint64_t>(got);
      stats_.received_bytes += static_cast<std::uint64_t>(got);
      return;
    }
  }

  void set_pace(double bytes_s) override { set_socket_pace(socket_.get(), bytes_s); }

  void lose(int error) {
    is_broken_ = true;
    ended_ = std::string("lost its connection: ") + std::strerror(error);
  }

  Descriptor socket_;
};

}  // namespace

Result<std::unique_ptr<StreamLink>> tcp_stream(std::vector<Descriptor> sockets, std::unique_ptr<Tags> tags) {
  const int on = 1;
  for (const Descriptor& socket : sockets) {
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  }
  const bool are_several = sockets.size() > 1, is_striped = are_several || tags != nullptr;
  const std::size_t bytes = are_several ? kStripedBufferBytes : kBufferBytes;
  auto out = MirroredMemory::allocate(bytes), in = MirroredMemory::allocate(bytes);
  Descriptor timer(are_several ? timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC) : -1);
  if (!out || !in || (are_several && !timer.is_open())) {
    return tl::unexpected(system_error("cannot map buffers for a connection"));
  }
  if (is_striped) {
    return striped_stream(std::move(sockets), std::move(timer), std::move(out), std::move(in), std::move(tags));
  }
  return std::make_unique<TcpStream>(std::move(sockets.front()), std::move(out), std::move(in));
}

}  // namespace netfold::link
