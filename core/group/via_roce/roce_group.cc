#include "group/via_roce/roce_group.h"

#include <fmt/core.h>

#include <utility>

#include "group/via_roce/packet_channel.h"
#include "group/via_roce/verbs_channel.h"
#include "link/fault_injector.h"
#include "link/packet/packet_link.h"
#include "link/pcap_writer.h"

namespace netfold::group {
namespace {

Result<std::unique_ptr<MessageChannel>> open_packets(const RoceGroupOptions& options) {
  auto opened = link::open_packet_link(
      {.interface = options.device, .ether_types = {wire::roce::kEtherType, wire::roce::kNoticeEtherType}});
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
  channel.queue_pair = 0x100u + 2u * options.job.job;
  channel.first_psn = options.first_psn;
  channel.key = 0x4e46u << 16 | options.job.epoch;
  channel.sender.window_packets = options.window_packets;
  return std::make_unique<PacketChannel>(std::move(link), channel);
}

}  // namespace

Result<std::unique_ptr<RoceGroup>> RoceGroup::open(RoceGroupOptions options) {
  if (options.job.rank >= options.job.world || options.job.world < 2) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("rank {} of {}: RoCE workers write to each other in a ring, so there are two at "
                                     "least, and ranks are below their number",
                                     options.job.rank, options.job.world));
  }
  auto channel = options.uses_verbs ? open_verbs_channel(options.device) : open_packets(options);
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
  const auto right = parse_card(cards[(rank + 1) % world]);
  const auto left = parse_card(cards[(rank + world - 1) % world]);
  if (!right) return tl::unexpected(right.error());
  if (!left) return tl::unexpected(left.error());
  if (const auto connected = channel_->connect(*right, *left); !connected) return connected;
  start(std::make_unique<RoceSession>(options_.job, *channel_, from_seconds(options_.timeout_s)));
  return {};
}

}  // namespace netfold::group
