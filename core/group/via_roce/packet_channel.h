// A message channel without an RDMA NIC: the RoCE endpoint of this process over a link that carries whole frames.
#pragma once

#include <array>
#include <memory>

#include "group/via_roce/message_channel.h"
#include "link/link.h"

namespace netfold::group {

struct PacketChannelOptions {
  std::uint64_t mac = 0;             // of the interface
  std::uint32_t ip = 0;              // its IPv4 address, for RoCE v2; 0: v1
  std::uint32_t queue_pair = 0x100;  // of the sending end; the receiving one has the next number
  std::uint32_t first_psn = 0;
  std::uint32_t key = 0;
  RoceSenderOptions sender = {};
};

class PacketChannel final : public MessageChannel {
 public:
  PacketChannel(std::unique_ptr<link::Link> link, PacketChannelOptions options);

  Result<bool> pump(Nanoseconds now) override;
  std::span<std::byte> room(std::uint32_t number) override;
  void post(std::uint32_t number, std::size_t size_bytes, bool is_short, Nanoseconds now) override;
  std::uint64_t acknowledged() const override { return endpoint_->sender().acknowledged(); }
  std::optional<Arrived> take() override;
  Nanoseconds deadline() const override;
  int descriptor() const override { return link_->descriptor(); }
  std::optional<wire::roce::Notice> take_notice() override { return endpoint_->take_notice(); }
  nlohmann::json counters() const override;
  QpPairInfo card() const override { return card_; }
  Result<void> connect(const QpPairInfo& right, const QpPairInfo& left) override;

  link::Link& link() { return *link_; }
  RoceEndpoint& endpoint() { return *endpoint_; }  // from connect() on

 private:
  static constexpr std::size_t kSendMost = 64;

  bool send(Nanoseconds now);

  std::unique_ptr<link::Link> link_;
  PacketChannelOptions options_;
  QpPairInfo card_;
  std::unique_ptr<RoceEndpoint> endpoint_;  // from connect() on
  std::vector<std::array<std::byte, RoceEndpoint::kFrameBytesMax>> frames_;
  std::vector<link::Outgoing> sending_;  // what the link has not taken lies at the front
};

// The interface-local address of a worker that speaks RoCE v1: EUI-64 of its MAC in fe80::/64, as RDMA NICs have at
// index 0.
wire::roce::Gid link_local_gid(std::uint64_t mac);

}  // namespace netfold::group
