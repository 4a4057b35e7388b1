#include "membership/control_connection.h"

#include <utility>

namespace netfold::membership {
namespace {

constexpr Nanoseconds kGoodbyeMax = 250 * kMillisecond;

using State = WorkerSide::State;
using LinkState = link::ControlLink::State;

}  // namespace

ControlConnection::ControlConnection(std::unique_ptr<link::ControlLink> link, WorkerSide side,
                                     link::Address switch_address)
    : link_(std::move(link)), side_(std::move(side)), switch_address_(switch_address) {}

Nanoseconds ControlConnection::deadline() const {
  return gives_up_at_ == kNever ? side_.deadline() : gives_up_at_;
}

Result<void> ControlConnection::pump(Nanoseconds now) {
  if (side_.state() != State::kFailed) {
    const auto got = link_->read([&](std::string_view line) { side_.on_line(line, now); });
    side_.on_time(now);
    const auto sent = link_->write(side_.take_output());
    for (const auto& outcome : {got, sent}) {
      if (outcome.state == LinkState::kOpen || side_.state() == State::kFailed) continue;
      is_lost_ = outcome.state == LinkState::kClosed;
      side_.on_close(outcome.why);
    }
  }
  if (side_.state() != State::kFailed) return {};
  link_->shut_down_writing();  // so that the switch need not wait for us to go
  return tl::unexpected(side_.error());
}

bool ControlConnection::leave(const std::optional<Error>& error, Nanoseconds now) {
  if (gives_up_at_ == kNever) {
    if (side_.state() == State::kFailed) return true;
    side_.leave(error);
    const std::string goodbye = side_.take_output();
    if (goodbye.empty()) return true;  // it has not joined: the switch does not wait for a word
    gives_up_at_ = now + kGoodbyeMax;
    if (link_->write(goodbye).state != LinkState::kOpen) return true;
    if (!link_->wants_to_write()) link_->shut_down_writing();
    return false;
  }
  if (now >= gives_up_at_) return true;
  if (link_->wants_to_write()) {
    if (link_->flush().state != LinkState::kOpen) return true;
    if (!link_->wants_to_write()) link_->shut_down_writing();
  }
  return link_->read([](std::string_view) {}).state != LinkState::kOpen;
}

std::vector<link::Address> ControlConnection::shard_addresses() const {
  std::vector<link::Address> addresses;
  const IpAddress ip = side_.data_ip().value_or(switch_address_.ip);
  for (const std::uint16_t port : side_.udp_ports()) addresses.push_back({ip, port});
  return addresses;
}

}  // namespace netfold::membership
