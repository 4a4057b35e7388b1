#include "membership/join_attempts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "wire/packet.h"

namespace netfold::membership {
namespace {

constexpr Nanoseconds kRetryPause = 50 * kMillisecond;  // between two attempts to reach the switch
constexpr Nanoseconds kConnectMax = 2 * kSecond;        // one attempt: a lost SYN is sent again by a new one
constexpr std::uint32_t kPathBytesUnknown = 1500;
constexpr Nanoseconds kVerdictGrace = 500 * kMillisecond;  // for the switch to say first who is missing

}  // namespace

JoinAttempts::JoinAttempts(const JoinOptions& options, link::Address address,
                           std::function<control::Nonce()> draw_nonce, Nanoseconds now)
    : options_(options),
      address_(address),
      draw_nonce_(std::move(draw_nonce)),
      deadline_(now + from_seconds(options.timeout_s)),
      next_attempt_(now) {
  begin_connecting(now);
}

void JoinAttempts::begin_connecting(Nanoseconds now) {
  const double patience_s = std::min(options_.timeout_s, options_.connect_timeout_s);
  reached_by_ = std::min(deadline_, now + from_seconds(patience_s));
  last_ = "no answer";
}

bool JoinAttempts::begin_attempt(Nanoseconds now) {
  if (state_ != State::kPausing || now < next_attempt_ || now >= reached_by_) return false;
  state_ = State::kConnecting;
  attempt_until_ = std::min(reached_by_, now + kConnectMax);
  return true;
}

void JoinAttempts::on_connected(std::unique_ptr<link::ControlLink> link, Nanoseconds now) {
  state_ = State::kTalking;
  connection_ = std::make_unique<ControlConnection>(std::move(link), WorkerSide(request(now), now), address_);
}

void JoinAttempts::on_unreachable(const std::string& why, Nanoseconds now) {
  last_ = why;
  pause(now);
}

void JoinAttempts::say_ranks(const control::Ranks& ranks) {
  ranks_ = ranks;
  if (connection_) connection_->say_ranks(ranks);
}

void JoinAttempts::pause(Nanoseconds now) {
  state_ = State::kPausing;
  next_attempt_ = std::min(deadline_, now + kRetryPause);
}

Result<std::unique_ptr<ControlConnection>> JoinAttempts::pump(Nanoseconds now) {
  if (state_ == State::kConnecting && now >= attempt_until_) on_unreachable("no answer", now);
  if (state_ == State::kPausing && now >= reached_by_) return tl::unexpected(unreachable());
  if (state_ != State::kTalking) return nullptr;
  const WorkerSide& side = connection_->side();
  const bool was_open = side.state() != WorkerSide::State::kFailed;
  auto alive = connection_->pump(now);
  if (alive && side.state() == WorkerSide::State::kSearching) {
    search(now);
    alive = connection_->pump(now);
  }
  if (alive && side.state() == WorkerSide::State::kAdmitted) return std::move(connection_);
  if (alive) {
    if (now < give_up_at()) return nullptr;
    return tl::unexpected(give_up());
  }
  const double retry_s = side.retry_s();
  if (retry_s > 0 && retry_until_ == kNever) retry_until_ = now + from_seconds(retry_s);
  const bool may_pass = retry_s > 0 ? now < retry_until_ : was_open && connection_->is_lost();
  connection_.reset();
  search_.reset();
  if (!may_pass || now >= deadline_) return tl::unexpected(alive.error());
  begin_connecting(now + kRetryPause);
  pause(now);
  return nullptr;
}

Nanoseconds JoinAttempts::deadline() const {
  switch (state_) {
    case State::kPausing: return std::min(next_attempt_, reached_by_);
    case State::kConnecting: return attempt_until_;
    case State::kTalking: break;
  }
  return std::min({give_up_at(), connection_->deadline(), search_ ? search_->deadline() : kNever});
}

// Where nothing comes back, perhaps because a firewall drops the probes, large packets are not trusted.
void JoinAttempts::search(Nanoseconds now) {
  if (!search_) search_.emplace(options_.path_bytes_max, now);
  const auto found = search_->found(now);
  if (!found) return;
  const std::uint32_t unknown = std::min(options_.mtu, mtu_to_say(kPathBytesUnknown, address_.ip));
  connection_->say_mtu(*found == 0 ? unknown : mtu_to_say(*found, address_.ip));
  search_.reset();
}

std::optional<JoinAttempts::PathPacket> JoinAttempts::next_path_packet(Nanoseconds now) {
  if (!search_ || !connection_) return std::nullopt;
  const auto probe = search_->next(now);
  if (!probe) return std::nullopt;
  return PathPacket{connection_->path_address(),
                    wire::emit(wire::PathProbe{connection_->side().hello().nonce, probe->number}),
                    probe->size_bytes - address_.ip.header_bytes() - wire::kUdpBytes};
}

void JoinAttempts::on_datagram(std::span<const std::byte> bytes, Nanoseconds now) {
  const auto probe = wire::read_path_probe(bytes);
  if (probe && search_ && connection_ && probe->nonce == connection_->side().hello().nonce) {
    search_->on_answer(probe->number, now);
  }
}

Nanoseconds JoinAttempts::give_up_at() const {
  return deadline_ + (connection_->side().state() == WorkerSide::State::kWaiting ? kVerdictGrace : 0);
}

Error JoinAttempts::unreachable() const {
  return {ErrorCode::kSwitchFailed,
          fmt::format("cannot reach the switch at {} within {:g} s ({}): see whether `netfold switch` runs there, "
                      "whether the address is right, and whether a firewall lets TCP port {} through",
                      options_.switch_address, std::min(options_.timeout_s, options_.connect_timeout_s), last_,
                      address_.port)};
}

Error JoinAttempts::give_up() const {
  if (connection_->side().state() == WorkerSide::State::kConnecting) {
    return {ErrorCode::kSwitchFailed,
            fmt::format("what answers at {} does not speak as a Netfold switch: see whether the address is right",
                        options_.switch_address)};
  }
  if (!connection_->side().knows_who_is_here()) {
    return {ErrorCode::kSwitchFailed,
            fmt::format("the switch at {} did not answer this rank's request to join job '{}' within {:g} s: see "
                        "whether it runs and whether the network to it works",
                        options_.switch_address, options_.job, options_.timeout_s)};
  }
  const auto missing = connection_->side().missing_ranks();
  const std::string who = missing.empty() ? "the host" : fmt::format("ranks {}", fmt::join(missing, ", "));
  return {ErrorCode::kTimeout,
          fmt::format("{} of job '{}' did not join the switch at {} within {:g} s: see whether all {} workers "
                      "were started with this switch's address",
                      who, options_.job, options_.switch_address, options_.timeout_s, options_.world),
          missing.empty() ? kNoRank : missing.front()};
}

WorkerRequest JoinAttempts::request(Nanoseconds now) const {
  WorkerRequest request;
  request.switch_name = switch_name(options_);
  request.join.job = options_.job;
  request.join.world = options_.world;
  request.join.rank = options_.rank;
  request.join.udp_port = options_.udp_port;
  request.join.mtu = options_.mtu;
  request.searches_path = options_.path_bytes_max > 0;
  request.join.bfp = options_.bfp;
  request.join.window = options_.window;
  request.join.timeout_s = std::max(to_seconds(deadline_ - now), control::kTimeoutSecondsMin);
  request.secret = control::Secret::from(options_.secret);
  request.require_auth = options_.require_auth;
  request.join.is_hosted = options_.is_hosted;
  request.join.nonce = draw_nonce_();
  request.join.below = options_.below;
  request.join.token = options_.token;
  request.ranks = ranks_;
  return request;
}

}  // namespace netfold::membership
