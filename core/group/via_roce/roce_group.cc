#include "group/via_roce/roce_group.h"

#include <fmt/core.h>

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
  channel.first_psn = options.first_psn;
  channel.key = 0x4e46u << 16 | options.job.epoch;
  channel.sender.window_packets = options.window_packets;
  return std::make_unique<PacketChannel>(std::move(link), channel);
}

// A neighbour as this rank's frames reach it.
Result<QpPairInfo> reachable(const std::string& text, std::size_t rank, const RoceGroupOptions& options) {
  auto card = parse_card(text);
  if (!card) return card;
  if (card->sending.version != options.version) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("rank {} speaks RoCE v{}, and rank {} v{}: all ranks of a job must speak the same", rank,
                    static_cast<int>(card->sending.version), options.job.rank, static_cast<int>(options.version)),
        static_cast<std::uint16_t>(rank));
  }
  if (options.version == Version::kV1 || options.uses_verbs) return card;  // an RDMA NIC finds the way by itself
  const auto ip = wire::roce::ipv4_of(card->sending.gid);
  const auto hop = link::next_hop(options.device, ip.value_or(0), card->sending.mac);
  if (!hop) return tl::unexpected(hop.error());
  card->sending.mac = card->receiving.mac = *hop;
  return card;
}

}  // namespace

Result<std::unique_ptr<RoceGroup>> RoceGroup::open(RoceGroupOptions options) {
  if (options.job.rank >= options.job.world || options.job.world < 2) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("rank {} of {}: RoCE workers write to each other in a ring, so there are two at "
                                     "least, and ranks are below their number",
                                     options.job.rank, options.job.world));
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
      channel_(std::move(channel)) {}

std::string RoceGroup::card() const {
  return to_text(channel_->card());
}

Result<void> RoceGroup::connect(const std::vector<std::string>& cards) {
  const std::size_t world = options_.job.world, rank = options_.job.rank;
  if (cards.size() != world || is_started()) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("call connect() once, with the endpoint information of all {} ranks", world));
  }
  const std::size_t right_rank = (rank + 1) % world, left_rank = (rank + world - 1) % world;
  const auto right = reachable(cards[right_rank], right_rank, options_);
  const auto left = reachable(cards[left_rank], left_rank, options_);
  if (!right) return tl::unexpected(right.error());
  if (!left) return tl::unexpected(left.error());
  if (options_.version == Version::kV2 && !options_.uses_verbs) {
    const auto own = wire::roce::ipv4_of(channel_->card().sending.gid);
    silenced_ = std::make_unique<link::SilencedPort>(own.value_or(0), wire::roce::kUdpPort);
  }
  if (const auto connected = channel_->connect(*right, *left); !connected) return connected;
  start(std::make_unique<RoceSession>(options_.job, *channel_, from_seconds(options_.timeout_s)));
  return {};
}

}  // namespace netfold::group
