#include "group/via_roce/roce_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <utility>

#include "group/via_roce/packet_channel.h"
#include "group/via_roce/verbs_channel.h"
#include "link/fault_injector.h"
#include "link/packet/ipv4_path.h"
#include "link/packet/packet_link.h"
#include "link/pcap_writer.h"

namespace netfold::group {
namespace {

using wire::roce::Version;
constexpr std::uint16_t kPortsMax = 26;  // the ports of AGG_PORT_CFG (switch/ethernet/aggregation_config.h)
constexpr std::uint16_t kWorldMax = kPortsMax * kPortsMax;  // of a tree of two levels

Result<std::unique_ptr<MessageChannel>> open_packets(const RoceGroupOptions& options) {
  link::PacketSocketOptions wanted{.interface = options.device, .ether_types = {wire::roce::kNoticeEtherType}};
  if (options.version == Version::kV1) {
    wanted.ether_types.push_back(wire::roce::kEtherType);
  } else {
    wanted.udp_port = wire::roce::kUdpPort;
  }
  auto opened = link::open_packet_link(wanted);
  if (!opened) return tl::unexpected(opened.error());
  auto link = std::move(opened->link);
  if (!options.faults.empty()) {
    const auto faults = link::parse_faults(options.faults);
    if (!faults) return tl::unexpected(faults.error());
    link = link::inject_faults(std::move(link), *faults, &now);
  }
  if (!options.pcap_path.empty()) {
    auto captured = link::capture_frames(std::move(link), options.pcap_path);
    if (!captured) return tl::unexpected(captured.error());
    link = std::move(*captured);
  }
  PacketChannelOptions channel;
  channel.mac = opened->mac;
  if (options.version == Version::kV2) {
    const auto ip = link::ipv4_address(options.device);
    if (!ip) return tl::unexpected(ip.error());
    channel.ip = *ip;
  }
  channel.queue_pair = 0x100u + 2u * options.job.job;
  channel.first_psn = options.first_psn.value_or(std::random_device{}());
  channel.key = 0x4e46u << 16 | options.job.epoch;
  channel.sender.window_packets = options.window_packets;
  return std::make_unique<PacketChannel>(std::move(link), channel);
}

// An epoch goes on within 2 h 16 min, and comes again after 4 h 33 min: a switch has forgotten a job long before.
std::uint16_t next_epoch() {
  static std::atomic<std::uint64_t> last = 0;
  constexpr std::int64_t kTick = 250 * kMillisecond;
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  const auto ticks = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count() / kTick;
  std::uint64_t before = last, next = 0;
  do {
    next = std::max(before + 1, static_cast<std::uint64_t>(ticks));
    if ((next & 0xffff) == 0) ++next;  // 0 stands for an epoch that is to be taken
  } while (!last.compare_exchange_weak(before, next));
  return static_cast<std::uint16_t>(next);
}

Result<std::vector<QpPairInfo>> read_cards(const std::vector<std::string>& texts, const RoceGroupOptions& options) {
  std::vector<QpPairInfo> cards;
  const auto mismatch = [](std::size_t rank, const std::string& text) {
    return fail(ErrorCode::kMismatch, text, static_cast<int>(rank));
  };
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto card = parse_card(texts[rank]);
    if (!card) return tl::unexpected(card.error());
    if (card->sending.version != options.version) {
      return mismatch(rank, fmt::format("rank {} speaks RoCE v{}, and rank {} v{}: all ranks of a job must speak the "
                                        "same version",
                                        rank, static_cast<int>(card->sending.version), options.job.rank,
                                        static_cast<int>(options.version)));
    }
    if (card->job != options.job.job) {
      return mismatch(rank, fmt::format("rank {} is of RoCE job {}, and rank {} of {}: give all ranks the same number",
                                        rank, card->job, options.job.rank, options.job.job));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (cards[other].sending.gid != card->sending.gid) continue;
      return mismatch(rank, fmt::format("ranks {} and {} have the same RoCE address {}: every rank of a job needs an "
                                        "interface of its own, at a port of the switch of its own",
                                        other, rank, wire::roce::to_string(card->sending.gid)));
    }
    cards.push_back(*card);
  }
  return cards;
}

// An RDMA NIC finds the way to its neighbour by itself.
Result<void> find_next_hop(const RoceGroupOptions& options, QpPairInfo& neighbour) {
  if (options.version == Version::kV1 || options.uses_verbs) return {};
  const auto ip = wire::roce::ipv4_of(neighbour.sending.gid);
  const auto hop = link::next_hop(options.device, ip.value_or(0), neighbour.sending.mac);
  if (!hop) return tl::unexpected(hop.error());
  neighbour.sending.mac = neighbour.receiving.mac = *hop;
  return {};
}

}  // namespace

Result<std::unique_ptr<RoceGroup>> RoceGroup::open(RoceGroupOptions options) {
  if (options.job.rank >= options.job.world || options.job.world < 2) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("rank {} of {}: RoCE workers write to each other in a ring, so there are two at "
                                     "least, and ranks are below their number",
                                     options.job.rank, options.job.world));
  }
  if (options.job.world > kWorldMax) {
    return netfold::fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} ranks: a switch folds RoCE of at most {} ports, and a tree of switches that of "
                    "{} ranks",
                    options.job.world, kPortsMax, kWorldMax));
  }
  if (options.job.one_way && options.job.world > kPortsMax) {
    return netfold::fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} ranks: a tree of switches does not have one-way messages, and one switch folds "
                    "at most {} ports: leave out one-way",
                    options.job.world, kPortsMax));
  }
  auto channel = options.uses_verbs ? open_verbs_channel(options.device, options.version) : open_packets(options);
  if (!channel) return tl::unexpected(channel.error());
  return std::unique_ptr<RoceGroup>(new RoceGroup(std::move(options), std::move(*channel)));
}

RoceGroup::RoceGroup(RoceGroupOptions options, std::unique_ptr<MessageChannel> channel)
    : Driver({.thread_name = fmt::format("nf-roce-{}", options.job.rank),
              .rank = options.job.rank,
              .core = options.core,
              .on_completion = options.on_completion,
              .closed = "this worker is closed: open another"}),
      options_(std::move(options)),
      channel_(std::move(channel)),
      card_(channel_->card()) {
  card_.job = options_.job.job;
  card_.one_way = std::exchange(options_.job.one_way, false) && !options_.uses_verbs;
  card_.epoch = options_.job.epoch != 0 ? options_.job.epoch : next_epoch();
}

std::string RoceGroup::address() const {
  return to_text(card_);
}

Result<void> RoceGroup::connect(const std::vector<std::string>& addresses) {
  const std::size_t world = options_.job.world, rank = options_.job.rank;
  if (addresses.size() != world || is_started()) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("call connect() once, with the endpoint information of all {} ranks", world));
  }
  const auto all = read_cards(addresses, options_);
  if (!all) return tl::unexpected(all.error());
  if (options_.job.epoch == 0) options_.job.epoch = all->front().epoch;
  options_.job.one_way = std::ranges::all_of(*all, &QpPairInfo::one_way);
  QpPairInfo right = (*all)[(rank + 1) % world], left = (*all)[(rank + world - 1) % world];
  if (const auto found = find_next_hop(options_, right); !found) return found;
  if (const auto found = find_next_hop(options_, left); !found) return found;
  if (options_.version == Version::kV2 && !options_.uses_verbs) {
    const auto own = wire::roce::ipv4_of(card_.sending.gid);
    silenced_ = std::make_unique<link::SilencedPort>(own.value_or(0), wire::roce::kUdpPort);
  }
  if (const auto connected = channel_->connect(right, left); !connected) return connected;
  start(std::make_unique<RoceSession>(options_.job, *channel_, from_seconds(options_.timeout_s)));
  return {};
}

}  // namespace netfold::group
