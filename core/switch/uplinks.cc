#include "switch/uplinks.h"

#include <algorithm>
#include <utility>

namespace netfold::switching {
namespace {

// Of the time that the workers wait for each other: then they hear that the switch above is not there, and not that
// ranks at other switches are missing.
constexpr double kConnectFraction = 0.8, kConnectMaxSeconds = 10;

}  // namespace

void Uplinks::join(const JoinAbove& join, Nanoseconds now) {
  auto uplink = std::make_unique<Uplink>();
  auto& options = uplink->options;
  options.switch_address = options_.parent;
  options.job = join.join.job;
  options.world = join.join.world;
  options.rank = join.join.rank;
  options.secret = options_.secret;
  options.require_auth = options_.require_auth;
  options.udp_port = join.join.below->udp_ports.front();
  options.mtu = options_.mtu();
  if (options_.path_bytes_max) options.path_bytes_max = options_.path_bytes_max();
  options.bfp = join.join.bfp;
  options.window = join.join.window;
  options.timeout_s = std::max(join.join.timeout_s, control::kTimeoutSecondsMin);
  options.connect_timeout_s = std::min(kConnectFraction * options.timeout_s, kConnectMaxSeconds);
  options.below = join.join.below;
  options.token = join.join.token;
  uplink->attempts = std::make_unique<membership::JoinAttempts>(options, options_.address, options_.draw_nonce, now);
  uplink->attempts->say_ranks(join.ranks);
  uplinks_[join.key] = std::move(uplink);
}

void Uplinks::tell(const TellAbove& tell) {
  const auto found = uplinks_.find(tell.key);
  if (found == uplinks_.end()) return;
  Uplink& uplink = *found->second;
  if (const auto* ranks = std::get_if<control::Ranks>(&tell.what); ranks && uplink.attempts) {
    uplink.options.rank = ranks->ranks.front();  // for another attempt
    uplink.attempts->say_ranks(*ranks);
  }
  if (!uplink.connection) return;
  if (const auto* left = std::get_if<control::Left>(&tell.what)) uplink.connection->say_left(left->rank);
  if (const auto* shared = std::get_if<control::SharedWork>(&tell.what)) uplink.connection->say_shared(*shared);
}

void Uplinks::leave(const LeaveAbove& leave, Nanoseconds now) {
  const auto found = uplinks_.find(leave.key);
  if (found == uplinks_.end()) return;
  Uplink& uplink = *found->second;
  auto connection = uplink.attempts ? uplink.attempts->take_connection() : std::move(uplink.connection);
  uplinks_.erase(found);
  if (!connection) return;
  connection->pump(now);  // what was said before
  goodbyes_.push_back({std::move(connection), leave.error});
}

std::vector<Uplinks::Event> Uplinks::pump(Nanoseconds now) {
  std::vector<Event> events;
  for (auto it = uplinks_.begin(); it != uplinks_.end();) {
    it = pump(it->first, *it->second, now, events) ? std::next(it) : uplinks_.erase(it);
  }
  std::erase_if(goodbyes_, [&](Goodbye& each) { return each.connection->leave(each.error, now); });
  return events;
}

// False if it is over.
bool Uplinks::pump(JobKey key, Uplink& uplink, Nanoseconds now, std::vector<Event>& events) {
  if (uplink.attempts) {
    auto joined = uplink.attempts->pump(now);
    if (!joined) {
      events.emplace_back(Lost{key, joined.error()});
      if (auto connection = uplink.attempts->take_connection()) {
        goodbyes_.push_back({std::move(connection), joined.error()});
      }
      return false;
    }
    if (const auto* const talking = uplink.attempts->connection()) {
      if (talking->side().present_ranks() != uplink.present) {
        uplink.present = talking->side().present_ranks();
        events.emplace_back(Present{key, uplink.present});
      }
    }
    if (!*joined) return true;
    uplink.connection = std::move(*joined);
    uplink.attempts.reset();
    events.emplace_back(Admitted{key, uplink.connection->lease(), uplink.connection->shard_addresses()});
  }
  const auto alive = uplink.connection->pump(now);
  for (const std::uint16_t rank : uplink.connection->left_ranks()) {
    if (uplink.left.insert(rank).second) events.emplace_back(Left{key, rank});
  }
  if (const auto share = uplink.connection->take_link_share()) events.emplace_back(Shared{key, *share});
  if (alive) return true;
  events.emplace_back(Lost{key, alive.error()});
  return false;
}

Nanoseconds Uplinks::deadline() const {
  Nanoseconds earliest = kNever;
  for (const auto& [key, uplink] : uplinks_) {
    earliest = std::min(earliest, uplink->attempts ? uplink->attempts->deadline() : uplink->connection->deadline());
  }
  for (const Goodbye& each : goodbyes_) earliest = std::min(earliest, each.connection->deadline());
  return earliest;
}

std::vector<JobKey> Uplinks::begin_attempts(Nanoseconds now) {
  std::vector<JobKey> wanted;
  for (const auto& [key, uplink] : uplinks_) {
    if (uplink->attempts && uplink->attempts->begin_attempt(now)) wanted.push_back(key);
  }
  return wanted;
}

bool Uplinks::is_connecting(JobKey key) const {
  const auto found = uplinks_.find(key);
  return found != uplinks_.end() && found->second->attempts && found->second->attempts->is_connecting();
}

void Uplinks::on_connected(JobKey key, std::unique_ptr<link::ControlLink> link, Nanoseconds now) {
  if (is_connecting(key)) uplinks_.at(key)->attempts->on_connected(std::move(link), now);
}

void Uplinks::on_unreachable(JobKey key, const std::string& why, Nanoseconds now) {
  if (is_connecting(key)) uplinks_.at(key)->attempts->on_unreachable(why, now);
}

std::optional<membership::JoinAttempts::PathPacket> Uplinks::next_path_packet(Nanoseconds now) {
  for (const auto& [key, uplink] : uplinks_) {
    if (!uplink->attempts) continue;
    if (auto packet = uplink->attempts->next_path_packet(now)) return packet;
  }
  return std::nullopt;
}

void Uplinks::on_datagram(std::span<const std::byte> bytes, Nanoseconds now) {
  for (const auto& [key, uplink] : uplinks_) {
    if (uplink->attempts) uplink->attempts->on_datagram(bytes, now);
  }
}

void Uplinks::for_each_connection(const std::function<void(int, bool)>& act) const {
  const auto show = [&](const membership::ControlConnection* connection) {
    if (connection != nullptr) act(connection->descriptor(), connection->wants_to_write());
  };
  for (const auto& [key, uplink] : uplinks_) {
    show(uplink->attempts ? uplink->attempts->connection() : uplink->connection.get());
  }
  for (const Goodbye& each : goodbyes_) show(each.connection.get());
}

}  // namespace netfold::switching
