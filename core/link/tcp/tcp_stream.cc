#include "link/tcp/tcp_stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "link/mirrored_memory.h"

namespace netfold::link {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // each direction
constexpr std::size_t kWorthReading = std::size_t{64}
                                      << 10;  // with less than this at hand the kernel is asked for more

// Positions only grow; a position modulo the size is a place.
struct Buffer {
  std::unique_ptr<MirroredMemory> memory;
  std::uint64_t head = 0, tail = 0;

  std::size_t used() const { return head - tail; }
  std::size_t free() const { return memory->size_bytes() - used(); }
  std::byte* first_used() const { return memory->data() + tail % memory->size_bytes(); }
  std::byte* first_free() const { return memory->data() + head % memory->size_bytes(); }
};

class TcpStream final : public StreamLink {
 public:
  TcpStream(int descriptor, std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in)
      : descriptor_(descriptor), out_{std::move(out)}, in_{std::move(in)} {}
  ~TcpStream() override { close(descriptor_); }

  std::span<std::byte> writable() override {
    if (out_.free() == 0) send_some();
    return {out_.first_free(), out_.free()};
  }
  void commit(std::size_t bytes) override { out_.head += bytes; }

  std::span<const std::byte> readable() override {
    if (in_.used() < kWorthReading && !ended_) receive_some();
    return {in_.first_used(), in_.used()};
  }
  void consume(std::size_t bytes) override { in_.tail += bytes; }

  void flush() override { send_some(); }
  bool has_unsent() const override { return out_.used() > 0 && !is_broken_; }

  // What wakes is the descriptor. Data that came since readable() was called last shows there too.
  bool arm(bool for_data, bool for_room) override {
    is_armed_for_data_ = for_data && in_.free() > 0 && !ended_;
    return for_room && out_.free() == out_.memory->size_bytes();
  }
  int descriptor() const override { return descriptor_; }
  short poll_events() const override {
    return static_cast<short>((is_armed_for_data_ ? POLLIN : 0) | (out_.used() > 0 && !is_broken_ ? POLLOUT : 0));
  }

  const std::optional<std::string>& ended() const override { return ended_; }
  const char* kind() const override { return "tcp"; }
  const StreamStats& stats() const override { return stats_; }

 private:
  void send_some() {
    while (out_.used() > 0 && !is_broken_) {
      const ssize_t sent = ::send(descriptor_, out_.first_used(), out_.used(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent < 0) return lose(errno);
      out_.tail += static_cast<std::size_t>(sent);
      stats_.sent_bytes += static_cast<std::size_t>(sent);
    }
  }

  void receive_some() {
    while (in_.free() > 0) {
      const ssize_t got = recv(descriptor_, in_.first_free(), in_.free(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got < 0) return lose(errno);
      if (got == 0) {
        ended_ = "closed its connection";
        return;
      }
      in_.head += static_cast<std::size_t>(got);
      stats_.received_bytes += static_cast<std::size_t>(got);
      return;  // what is left over is fetched when this has been worked on, while it is in the cache
    }
  }

  void lose(int error) {
    is_broken_ = true;
    ended_ = std::string("lost its connection: ") + std::strerror(error);
  }

  int descriptor_;
  Buffer out_, in_;
  bool is_armed_for_data_ = false, is_broken_ = false;
  std::optional<std::string> ended_;
  StreamStats stats_;
};

}  // namespace

Result<std::unique_ptr<StreamLink>> tcp_stream(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  auto out = MirroredMemory::allocate(kBufferBytes), in = MirroredMemory::allocate(kBufferBytes);
  if (out && in) return std::make_unique<TcpStream>(descriptor, std::move(out), std::move(in));
  close(descriptor);
  return fail(ErrorCode::kSystem, std::string("cannot map buffers for a connection: ") + std::strerror(errno));
}

}  // namespace netfold::link
