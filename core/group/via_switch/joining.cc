#include "group/via_switch/joining.h"

#include <fmt/core.h>
#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/wakeup.h"
#include "link/tcp/control_socket.h"
#include "membership/join_attempts.h"

namespace netfold::group {
namespace {

constexpr std::size_t kDatagramsAtOnce = 64;
constexpr std::array<std::byte, control::kPathBytesMax> kZeros{};
constexpr Nanoseconds kPollSlice = 100 * kMillisecond;  // between two questions whether to go on

Result<void> check(const JoinOptions& options) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidArgument, std::move(what)); };
  if (!control::is_valid_job_name(options.job)) {
    return wrong(
        fmt::format("'{}' is not a name for a job: use 1 to {} printable ASCII characters, no spaces or quotes",
                    control::printable(options.job), control::kJobNameBytesMax));
  }
  if (options.world < 1 || options.world > control::kWorldMax) {
    return wrong(fmt::format("a job of {} workers: it must have 1 to {}", options.world, control::kWorldMax));
  }
  if (options.rank >= options.world && options.rank != control::kHostRank) {
    return wrong(fmt::format("rank {} in a job of {} workers: ranks are 0 to {}", options.rank, options.world,
                             options.world - 1));
  }
  if (!numbers::is_valid(options.bfp)) {
    return wrong(
        fmt::format("bfp<block {}, mantissa {}>: the block must be a power of two from 8 to 128, the mantissa "
                    "2 to 7 bits",
                    options.bfp.block, options.bfp.mantissa));
  }
  if (options.window > control::kSlotsMax) {
    return wrong(fmt::format("a window of {} chunks: at most {}", options.window, control::kSlotsMax));
  }
  if (options.mtu < control::kMtuMin || options.mtu > control::kMtuMax) {
    return wrong(
        fmt::format("an MTU of {} bytes: Netfold needs {} to {}", options.mtu, control::kMtuMin, control::kMtuMax));
  }
  if (!(options.connect_timeout_s > 0)) {
    return wrong(fmt::format("a connection timeout of {} s: it must be above 0", options.connect_timeout_s));
  }
  if (!(options.timeout_s > 0 && options.timeout_s <= control::kTimeoutSecondsMax)) {
    return wrong(fmt::format("a timeout of {} s: it must be above 0 and at most {:g}", options.timeout_s,
                             control::kTimeoutSecondsMax));
  }
  return {};
}

void wait_on(int descriptor, bool also_for_writing, Nanoseconds until) {
  pollfd wanted{descriptor, static_cast<short>(POLLIN | (also_for_writing ? POLLOUT : 0)), 0};
  wait_for({&wanted, 1}, until);
}

// Runs the attempts (membership/join_attempts.h) over sockets.
class Joining {
 public:
  Joining(const JoinOptions& options, link::Address address, link::Link* link)
      : options_(options), address_(address), link_(link), attempts_(options, address, &draw_nonce, now()) {}

  Result<std::unique_ptr<ControlConnection>> run() {
    while (true) {
      if (attempts_.begin_attempt(now())) {
        if (auto begun = begin_connecting(); !begun) return tl::unexpected(begun.error());
      }
      auto joined = attempts_.pump(now());
      if (!joined) return give_up(joined.error());
      if (*joined) return joined;
      if (attempts_.is_searching()) look_for_path();
      if (!attempts_.is_connecting()) connecting_.reset();
      if (options_.keep_going && !options_.keep_going()) {
        return give_up({ErrorCode::kSystem, fmt::format("joining job '{}' was interrupted", options_.job)});
      }
      wait();
    }
  }

 private:
  static control::Nonce draw_nonce() {
    control::Nonce nonce;
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
  }

  Result<void> begin_connecting() {
    const auto descriptor = link::begin_connect(address_, {}, options_.road);
    if (!descriptor) {
      if (descriptor.error().code != ErrorCode::kSwitchFailed) return tl::unexpected(descriptor.error());
      attempts_.on_unreachable(descriptor.error().message, now());
    } else {
      connecting_ = std::make_unique<link::ControlSocket>(*descriptor);
    }
    return {};
  }

  void look_for_path() {
    for (const link::Incoming& each : link_->receive(kDatagramsAtOnce)) attempts_.on_datagram(each.bytes, now());
    while (const auto packet = attempts_.next_path_packet(now())) {
      const auto zeros = std::span(kZeros).first(packet->datagram_bytes - packet->head.size());
      const link::Outgoing datagram{packet->to, packet->head, zeros, {}};
      link_->send(std::span(&datagram, 1));  // what the link refuses is lost
    }
  }

  void wait() {
    const Nanoseconds until = std::min(now() + kPollSlice, attempts_.deadline());
    if (const ControlConnection* const talking = attempts_.connection()) {
      std::array<pollfd, 2> wanted{{{talking->descriptor(), POLLIN, 0}, {-1, POLLIN, 0}}};
      if (talking->wants_to_write()) wanted[0].events |= POLLOUT;
      if (attempts_.is_searching()) wanted[1].fd = link_->descriptor();
      return wait_for(wanted, until);
    }
    if (!connecting_) return wait_for({}, until);
    pollfd wanted{connecting_->descriptor(), POLLOUT, 0};
    wait_for({&wanted, 1}, until);
    if (wanted.revents == 0) return;
    const int result = link::connect_result(connecting_->descriptor());
    if (result == EINPROGRESS) return;
    if (result == 0) return attempts_.on_connected(std::move(connecting_), now());
    attempts_.on_unreachable(std::strerror(result), now());
  }

  tl::unexpected<Error> give_up(const Error& error) {
    if (const auto talking = attempts_.take_connection()) leave_switch(*talking, error);
    return tl::unexpected(error);
  }

  const JoinOptions& options_;
  link::Address address_;
  link::Link* link_;
  membership::JoinAttempts attempts_;
  std::unique_ptr<link::ControlSocket> connecting_;
};

}  // namespace

Result<std::unique_ptr<ControlConnection>> join_switch(JoinOptions options, link::Link* link) {
  auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  if (options.mtu == 0) {
    const auto route = link::route_to(*address, options.road);
    if (!route) return tl::unexpected(route.error());
    options.mtu = membership::mtu_to_say(route->mtu, address->ip);
    if (link != nullptr) options.path_bytes_max = std::min(route->mtu, control::kPathBytesMax);
  }
  if (auto valid = check(options); !valid) return tl::unexpected(valid.error());
  if (sodium_init() < 0) return fail(ErrorCode::kSystem, "libsodium finds no source of randomness on this machine");
  return Joining(options, *address, link).run();
}

void leave_switch(ControlConnection& connection, const std::optional<Error>& error) {
  while (!connection.leave(error, now())) {
    wait_on(connection.descriptor(), connection.wants_to_write(), connection.deadline());
  }
}

}  // namespace netfold::group
