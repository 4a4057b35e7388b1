#include "handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "group/via_peers/rank_tags.h"
#include "link/tcp/control_socket.h"
#include "link/tcp/tcp_stream.h"
#include "log.h"
#include "wire/bytes.h"

namespace netfold::nccl {
namespace {

constexpr std::uint64_t kHandleMark = 0x6e66'6e63'636c'0001;  // "nfnccl", version 1
constexpr std::uint64_t kHelloMark = 0x6e66'6865'6c6c'0001;
constexpr std::size_t kVisitorsMax = 256;
constexpr Nanoseconds kHelloMax = 30 * kSecond;

// Without a secret the token itself is the proof.
control::Proof proof_of(const Settings& settings, const char* part, const Hello& hello, const control::Nonce& token) {
  if (settings.secret) return settings.secret->rank_proof(part, {hello.index, 0, hello.of, hello.nonce, token});
  control::Proof proof = {};
  std::ranges::copy(token, proof.begin());
  return proof;
}
control::Proof hello_proof(const Settings& settings, const Hello& hello, const control::Nonce& token) {
  return proof_of(settings, settings.requires_auth ? "nccl-hello-tagged" : "nccl-hello", hello, token);
}
control::Proof answer_proof(const Settings& settings, const Hello& hello, const control::Nonce& token) {
  return proof_of(settings, settings.requires_auth ? "nccl-answer-tagged" : "nccl-answer", hello, token);
}

// Null where none are wanted. `nonce`: the sender's.
std::unique_ptr<link::Tags> tags_of(const Settings& settings, const control::Nonce& nonce, std::size_t connections,
                                    const control::Nonce& token, bool sends) {
  if (!settings.requires_auth) return nullptr;
  return group::rank_tags(*settings.secret, "nccl", {0, 0, static_cast<int>(connections), nonce, token}, sends);
}

std::array<std::byte, Hello::kBytes> written(const Hello& hello) {
  std::array<std::byte, Hello::kBytes> bytes = {};
  wire::put_big(std::span<std::byte>(bytes), 0, kHelloMark);
  std::ranges::copy(hello.nonce, bytes.begin() + 8);
  bytes[24] = std::byte{hello.index};
  bytes[25] = std::byte{hello.of};
  std::ranges::copy(hello.proof, bytes.begin() + 32);
  return bytes;
}

std::optional<Hello> read_hello(std::span<const std::byte, Hello::kBytes> bytes) {
  Hello hello;
  std::copy_n(bytes.begin() + 8, hello.nonce.size(), hello.nonce.begin());
  hello.index = std::to_integer<std::uint8_t>(bytes[24]);
  hello.of = std::to_integer<std::uint8_t>(bytes[25]);
  std::copy_n(bytes.begin() + 32, hello.proof.size(), hello.proof.begin());
  const bool makes_sense = wire::get_big<std::uint64_t>(bytes, 0) == kHelloMark && hello.index < hello.of &&
                           hello.of <= link::kTcpStreamsMax;
  return makes_sense ? std::optional(hello) : std::nullopt;
}

std::string peer_of(int socket) {
  link::SocketAddress address;
  socklen_t size = link::SocketAddress::kSizeMax;
  getpeername(socket, address.get(), &size);
  return link::to_string(address.address());
}

}  // namespace

control::Nonce draw_nonce() {
  control::Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

void Handle::write(HandleBytes to) const {
  std::ranges::fill(to, std::byte{0});
  wire::put_big(std::span<std::byte>(to), 0, kHandleMark);
  std::ranges::copy(address.ip.v6(), to.begin() + 8);
  wire::put_big(std::span<std::byte>(to), 24, address.port);
  std::ranges::copy(token, to.begin() + 32);
}

std::optional<Handle> Handle::read(HandleBytes from) {
  if (wire::get_big<std::uint64_t>(from, 0) != kHandleMark) return std::nullopt;
  const std::span<const std::byte> bytes = from;
  Handle handle{{IpAddress::from_v6(bytes.subspan<8, IpAddress::kBytes>()), wire::get_big<std::uint16_t>(from, 24)}};
  std::copy_n(from.begin() + 32, handle.token.size(), handle.token.begin());
  return handle;
}

Result<std::unique_ptr<Listener>> Listener::open(const Nic& nic, const Settings& settings) {
  const auto listening = link::listen_at({nic.ip, 0});
  if (!listening) return tl::unexpected(listening.error());
  const Handle handle{link::local_address_of(*listening), draw_nonce()};
  return std::unique_ptr<Listener>(new Listener(link::Descriptor(*listening), handle, settings));
}

Listener::Listener(link::Descriptor socket, Handle handle, const Settings& settings)
    : socket_(std::move(socket)), handle_(handle), settings_(settings), gives_up_at_(now() + settings.timeout) {}

Result<std::unique_ptr<Receiver>> Listener::accept() {
  const Nanoseconds time = now();
  let_in(time);
  std::erase_if(visitors_, [&](Visitor& visitor) { return is_done_with(visitor, time); });
  const auto found = std::ranges::find_if(parties_, [](const auto& each) { return each.second.missing == 0; });
  if (found == parties_.end()) {
    if (time <= gives_up_at_) return nullptr;
    return fail(ErrorCode::kTimeout, fmt::format("no rank has connected to {} for {:.0f} s (NETFOLD_TIMEOUT_S)",
                                                 link::to_string(handle_.address), to_seconds(settings_.timeout)));
  }
  std::vector<link::Descriptor> sockets = std::move(found->second.sockets);
  const Hello hello{found->first, 0, static_cast<std::uint8_t>(sockets.size())};
  auto tags = tags_of(settings_, hello.nonce, sockets.size(), handle_.token, false);
  parties_.erase(found);
  const control::Proof answer = answer_proof(settings_, hello, handle_.token);
  std::string peer = peer_of(sockets.front().get());
  // A new connection takes so few bytes at once. If it is broken, the first receive says so.
  [[maybe_unused]] const ssize_t sent = send(sockets.front().get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  return std::make_unique<Receiver>(std::move(sockets), std::move(tags), std::move(peer), settings_.timeout);
}

void Listener::let_in(Nanoseconds now) {
  while (visitors_.size() < kVisitorsMax) {
    const int socket = accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    visitors_.push_back({.socket = link::Descriptor(socket), .leaves_at = now + kHelloMax});
  }
}

bool Listener::is_done_with(Visitor& visitor, Nanoseconds now) {
  const std::size_t missing = visitor.bytes.size() - visitor.heard;
  const ssize_t got = recv(visitor.socket.get(), visitor.bytes.data() + visitor.heard, missing, 0);
  if (got == 0 || (got < 0 && !link::may_try_again())) return true;
  if (got > 0) visitor.heard += static_cast<std::size_t>(got);
  if (visitor.heard < visitor.bytes.size()) return now > visitor.leaves_at;
  const auto hello = read_hello(visitor.bytes);
  if (hello && control::equal_in_constant_time(hello->proof, hello_proof(settings_, *hello, handle_.token))) {
    seat(*hello, std::move(visitor.socket));
  } else if (!std::exchange(has_warned_, true)) {
    warn(
        fmt::format("dropped a connection from {}: it does not know what a rank of this job knows; give all ranks "
                    "the same NETFOLD_SECRET and NETFOLD_REQUIRE_AUTH, or none",
                    peer_of(visitor.socket.get())));
  }
  return true;
}

void Listener::seat(const Hello& hello, link::Descriptor socket) {
  Party& party = parties_[hello.nonce];
  if (party.sockets.empty()) {
    party.sockets.resize(hello.of);
    party.missing = hello.of;
  }
  if (hello.index >= party.sockets.size() || party.sockets[hello.index].is_open()) return;  // said twice
  party.sockets[hello.index] = std::move(socket);
  --party.missing;
}

Connecting::Connecting(const Handle& handle, const Nic& nic, const Settings& settings)
    : handle_(handle),
      nic_(nic),
      settings_(settings),
      nonce_(draw_nonce()),
      gives_up_at_(now() + settings.connect_timeout) {}

Result<std::unique_ptr<Sender>> Connecting::pump() {
  if (sockets_.empty()) {
    if (const auto opened = open(); !opened) return tl::unexpected(opened.error());
  }
  while (greeted_ < sockets_.size()) {
    const auto said = say_hello(greeted_);
    if (!said) return tl::unexpected(said.error());
    if (!*said) break;
    // The answer comes when the other rank calls accept(), which may be late.
    if (++greeted_ == sockets_.size()) gives_up_at_ = now() + settings_.timeout;
  }
  if (greeted_ == sockets_.size()) {
    const auto heard = hear_answer();
    if (!heard) return tl::unexpected(heard.error());
    if (*heard) {
      auto tags = tags_of(settings_, nonce_, sockets_.size(), handle_.token, true);
      return std::make_unique<Sender>(std::move(sockets_), std::move(tags), link::to_string(handle_.address),
                                      settings_.timeout);
    }
  }
  if (!is_late()) return nullptr;
  return failed(ErrorCode::kTimeout, "it did not answer in time");
}

// From the NIC's own address where the peer is in its network: the kernel would take the first NIC there otherwise.
Result<void> Connecting::open() {
  const bool is_near = nic_.is_near(handle_.address.ip);
  for (int i = 0; i < settings_.streams; ++i) {
    const auto begun = link::begin_connect(handle_.address, is_near ? nic_.ip : IpAddress());
    if (!begun) return failed(ErrorCode::kPeerFailed, begun.error().message);
    sockets_.emplace_back(*begun);
  }
  return {};
}

Result<bool> Connecting::say_hello(std::size_t index) {
  pollfd polled{sockets_[index].get(), POLLOUT, 0};
  if (poll(&polled, 1, 0) <= 0) return false;
  if (const int error = link::connect_result(polled.fd); error != 0) {
    return failed(ErrorCode::kPeerFailed, std::strerror(error));
  }
  Hello hello{nonce_, static_cast<std::uint8_t>(index), static_cast<std::uint8_t>(sockets_.size())};
  hello.proof = hello_proof(settings_, hello, handle_.token);
  const auto bytes = written(hello);  // far less than what a new connection takes at once
  if (send(polled.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size())) return true;
  return failed(ErrorCode::kPeerFailed, std::strerror(errno));
}

Result<bool> Connecting::hear_answer() {
  const ssize_t got = recv(sockets_.front().get(), answer_.data() + heard_, answer_.size() - heard_, 0);
  if (got < 0 && link::may_try_again()) return false;
  if (got <= 0) {
    return failed(ErrorCode::kAuth,
                  "it closed the connection; give all ranks the same NETFOLD_SECRET and NETFOLD_REQUIRE_AUTH, or none");
  }
  heard_ += static_cast<std::size_t>(got);
  if (heard_ < answer_.size()) return false;
  const Hello first{nonce_, 0, static_cast<std::uint8_t>(sockets_.size())};
  if (control::equal_in_constant_time(answer_, answer_proof(settings_, first, handle_.token))) return true;
  return failed(ErrorCode::kAuth, "it does not know the same NETFOLD_SECRET, or its NETFOLD_REQUIRE_AUTH differs");
}

tl::unexpected<Error> Connecting::failed(ErrorCode code, const std::string& why) const {
  return fail(code, fmt::format("cannot connect to the rank at {}: {}", link::to_string(handle_.address), why));
}

}  // namespace netfold::nccl
