#include "engine/control_connection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/wakeup.h"

namespace netfold::engine {
namespace {

constexpr Nanoseconds kPollSlice = 100 * kMillisecond;     // between two questions whether to go on
constexpr Nanoseconds kRetryPause = 50 * kMillisecond;     // between two attempts to reach the switch
constexpr Nanoseconds kConnectMax = 2 * kSecond;           // one attempt: a lost SYN is sent again by a new one
constexpr Nanoseconds kVerdictGrace = 500 * kMillisecond;  // for the switch to say first who is missing
constexpr Nanoseconds kGoodbyeMax = 250 * kMillisecond;

Result<void> check(const JoinOptions& options) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidArgument, std::move(what)); };
  if (!jobs::is_valid_job_name(options.job)) {
    return wrong(fmt::format("'{}' is no name for a job: use 1 to {} printable ASCII characters, no spaces or quotes",
                             jobs::printable(options.job), jobs::kJobNameBytesMax));
  }
  if (options.world < 1 || options.world > jobs::kWorldMax) {
    return wrong(fmt::format("a job of {} workers: it must have 1 to {}", options.world, jobs::kWorldMax));
  }
  if (options.rank >= options.world && options.rank != jobs::kHostRank) {
    return wrong(fmt::format("rank {} in a job of {} workers: ranks are 0 to {}", options.rank, options.world,
                             options.world - 1));
  }
  if (!numbers::is_valid(options.bfp)) {
    return wrong(
        fmt::format("bfp<block {}, mantissa {}>: the block must be a power of two from 8 to 128, the mantissa "
                    "2 to 7 bits",
                    options.bfp.block, options.bfp.mantissa));
  }
  if (options.window > jobs::kSlotsMax) {
    return wrong(fmt::format("a window of {} chunks: at most {}", options.window, jobs::kSlotsMax));
  }
  if (options.mtu < jobs::kMtuMin || options.mtu > jobs::kMtuMax) {
    return wrong(fmt::format("an MTU of {} bytes: Netfold needs {} to {}", options.mtu, jobs::kMtuMin, jobs::kMtuMax));
  }
  if (!(options.connect_timeout_s > 0)) {
    return wrong(fmt::format("a connection timeout of {} s: it must be above 0", options.connect_timeout_s));
  }
  if (!(options.timeout_s > 0 && options.timeout_s <= jobs::kTimeoutSecondsMax)) {
    return wrong(fmt::format("a timeout of {} s: it must be above 0 and at most {:g}", options.timeout_s,
                             jobs::kTimeoutSecondsMax));
  }
  return {};
}

void wait_on(int descriptor, bool also_for_writing, Nanoseconds until) {
  pollfd wanted{descriptor, static_cast<short>(POLLIN | (also_for_writing ? POLLOUT : 0)), 0};
  wait_for({&wanted, 1}, until);
}

}  // namespace

// The blocking part: attempts to reach the switch, each with its handshake, until one is admitted or time is up.
class ControlConnection::Joining {
 public:
  Joining(const JoinOptions& options, link::Address address)
      : options_(options), address_(address), deadline_(now() + from_seconds(options.timeout_s)) {}

  Result<std::unique_ptr<ControlConnection>> run() {
    Nanoseconds retry_until = kNever;  // set by a refusal that may pass
    while (true) {
      auto socket = connect();
      if (!socket) return tl::unexpected(socket.error());
      auto joined = shake_hands(std::move(*socket));
      if (joined) return joined;
      const Nanoseconds at = now();
      if (retry_s_ > 0 && retry_until == kNever) retry_until = at + from_seconds(retry_s_);
      const bool may_pass = retry_s_ > 0 ? at < retry_until : lost_;
      if (!may_pass || at >= deadline_) return joined;
      if (auto going_on = pause(); !going_on) return tl::unexpected(going_on.error());
    }
  }

 private:
  Result<std::unique_ptr<ControlSocket>> connect() {
    std::string last = "no answer";
    const double patience_s = std::min(options_.timeout_s, options_.connect_timeout_s);
    const Nanoseconds give_up = std::min(deadline_, now() + from_seconds(patience_s));
    while (now() < give_up) {
      auto descriptor = begin_connect(address_);
      if (descriptor) {
        auto socket = std::make_unique<ControlSocket>(*descriptor);
        const Nanoseconds until = std::min(give_up, now() + kConnectMax);
        int result = EINPROGRESS;
        while (result == EINPROGRESS && now() < until) {
          if (auto going_on = keep_going(); !going_on) return tl::unexpected(going_on.error());
          pollfd wanted{*descriptor, POLLOUT, 0};
          wait_for({&wanted, 1}, std::min(until, now() + kPollSlice));
          if (wanted.revents != 0) result = connect_result(*descriptor);
        }
        if (result == 0) return socket;
        last = result == EINPROGRESS ? "no answer" : std::strerror(result);
      } else if (descriptor.error().code == ErrorCode::kSystem) {
        return tl::unexpected(descriptor.error());
      } else {
        last = descriptor.error().message;
      }
      if (auto going_on = pause(); !going_on) return tl::unexpected(going_on.error());
    }
    return fail(
        ErrorCode::kSwitchFailed,
        fmt::format("cannot reach the switch at {} within {:g} s ({}): see whether `netfold switch` runs there, "
                    "whether the address is right, and whether a firewall lets TCP port {} through",
                    options_.switch_address, patience_s, last, address_.port));
  }

  Result<std::unique_ptr<ControlConnection>> shake_hands(std::unique_ptr<ControlSocket> socket) {
    std::unique_ptr<ControlConnection> connection(new ControlConnection(std::move(socket), request(), address_));
    jobs::WorkerSide& side = connection->side_;
    retry_s_ = 0;
    lost_ = false;
    while (side.state() != jobs::WorkerSide::State::kAdmitted) {
      const Nanoseconds at = now();
      const bool waits = side.state() == jobs::WorkerSide::State::kWaiting;
      const Nanoseconds give_up = deadline_ + (waits ? kVerdictGrace : 0);
      if (at >= give_up) return tl::unexpected(give_up_on(*connection));
      if (auto going_on = keep_going(); !going_on) {
        connection->leave(going_on.error());
        return tl::unexpected(going_on.error());
      }
      wait_on(connection->descriptor(), connection->wants_to_write(),
              std::min({give_up, at + kPollSlice, connection->deadline()}));
      const bool was_open = side.state() != jobs::WorkerSide::State::kFailed;
      if (auto alive = connection->pump(now()); !alive) {
        retry_s_ = side.retry_s();
        lost_ = was_open && connection->lost_;
        return tl::unexpected(alive.error());
      }
    }
    return connection;
  }

  Error give_up_on(ControlConnection& connection) const {
    const auto missing = connection.side_.missing_ranks();
    const std::string who = missing.empty() ? "the host" : fmt::format("ranks {}", fmt::join(missing, ", "));
    Error error{ErrorCode::kTimeout,
                fmt::format("{} of job '{}' did not join the switch at {} within {:g} s: see whether all {} workers "
                            "were started with this switch's address",
                            who, options_.job, options_.switch_address, options_.timeout_s, options_.world),
                missing.empty() ? kNoRank : missing.front()};
    if (connection.side_.state() == jobs::WorkerSide::State::kConnecting) {
      error =
          Error{ErrorCode::kSwitchFailed,
                fmt::format("what answers at {} does not speak as a Netfold switch: see whether the address is right",
                            options_.switch_address)};
    }
    connection.leave(error);
    return error;
  }

  jobs::WorkerRequest request() const {
    jobs::WorkerRequest request;
    request.switch_name = options_.switch_address;
    request.job = options_.job;
    request.world = options_.world;
    request.rank = options_.rank;
    request.udp_port = options_.udp_port;
    request.mtu = options_.mtu;
    request.bfp = options_.bfp;
    request.window = options_.window;
    request.timeout_s = std::max(to_seconds(deadline_ - now()), jobs::kTimeoutSecondsMin);
    request.secret = jobs::Secret::from(options_.secret);
    request.require_auth = options_.require_auth;
    request.is_hosted = options_.is_hosted;
    randombytes_buf(request.nonce.data(), request.nonce.size());
    return request;
  }

  Result<void> keep_going() const {
    if (!options_.keep_going || options_.keep_going()) return {};
    return fail(ErrorCode::kSystem, fmt::format("joining job '{}' was interrupted", options_.job));
  }

  Result<void> pause() const {
    wait_for({}, std::min(deadline_, now() + kRetryPause));
    return keep_going();
  }

  const JoinOptions& options_;
  link::Address address_;
  Nanoseconds deadline_;
  double retry_s_ = 0;  // of the last attempt
  bool lost_ = false;   // the last attempt ended because the switch went away
};

ControlConnection::ControlConnection(std::unique_ptr<ControlSocket> socket, jobs::WorkerRequest request,
                                     link::Address switch_address)
    : socket_(std::move(socket)), side_(std::move(request), now()), switch_address_(switch_address) {}

ControlConnection::~ControlConnection() = default;

Result<std::unique_ptr<ControlConnection>> ControlConnection::join(const JoinOptions& options) {
  if (auto valid = check(options); !valid) return tl::unexpected(valid.error());
  auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  if (sodium_init() < 0) return fail(ErrorCode::kSystem, "libsodium finds no source of randomness on this machine");
  return Joining(options, *address).run();
}

Result<void> ControlConnection::pump(Nanoseconds at) {
  if (side_.state() != jobs::WorkerSide::State::kFailed) {
    const auto got = socket_->read([&](std::string_view line) { side_.on_line(line, at); });
    side_.on_time(at);
    const auto sent = socket_->write(side_.take_output());
    for (const auto& outcome : {got, sent}) {
      if (outcome.state == ControlSocket::State::kOpen || side_.state() == jobs::WorkerSide::State::kFailed) continue;
      lost_ = outcome.state == ControlSocket::State::kClosed;
      side_.on_close(outcome.why);
    }
  }
  if (side_.state() != jobs::WorkerSide::State::kFailed) return {};
  socket_->shut_down_writing();  // so that the switch need not wait for us to go
  return tl::unexpected(side_.error());
}

void ControlConnection::leave(const std::optional<Error>& error) {
  if (side_.state() == jobs::WorkerSide::State::kFailed) return;
  side_.leave(error);
  const Nanoseconds until = now() + kGoodbyeMax;
  const std::string goodbye = side_.take_output();
  if (goodbye.empty()) return;  // it has not joined: the switch does not wait for a word
  auto outcome = socket_->write(goodbye);
  while (outcome.state == ControlSocket::State::kOpen && socket_->wants_to_write() && now() < until) {
    wait_on(descriptor(), true, until);
    outcome = socket_->flush();
  }
  socket_->shut_down_writing();
  while (outcome.state == ControlSocket::State::kOpen && now() < until) {
    wait_on(descriptor(), false, until);
    outcome = socket_->read([](std::string_view) {});
  }
}

std::vector<link::Address> ControlConnection::shard_addresses() const {
  std::vector<link::Address> addresses;
  const std::uint32_t ip = side_.data_ip().value_or(switch_address_.ip);
  for (const std::uint16_t port : side_.udp_ports()) addresses.push_back({ip, port});
  return addresses;
}

}  // namespace netfold::engine
