#include "link/packet/packet_link.h"

#include <algorithm>

namespace netfold::link {
namespace {

class Packets final : public Link {
 public:
  explicit Packets(std::unique_ptr<PacketSocket> socket) : socket_(std::move(socket)) {}

  std::size_t send(std::span<const Outgoing> batch) override {
    pieces_.clear();
    pieces_.reserve(batch.size() * 3);
    frames_.clear();
    for (const Outgoing& frame : batch) {
      const std::size_t first = pieces_.size();
      for (const auto piece : {frame.head, frame.body, frame.tail}) {
        if (!piece.empty()) pieces_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
      }
      frames_.emplace_back(pieces_.data() + first, pieces_.size() - first);
    }
    const std::size_t taken = socket_->send(frames_, stats_.send_errors);
    stats_.system_calls += 1 + taken / PacketSocket::kFramesAtOnce;
    stats_.sent_packets += taken;
    for (std::size_t i = 0; i < taken; ++i) stats_.sent_bytes += batch[i].size_bytes();
    return taken;
  }

  std::span<const Incoming> receive(std::size_t) override {
    received_.clear();
    ++stats_.system_calls;
    for (const auto frame : socket_->receive()) {
      received_.push_back({{}, frame});
      stats_.received_bytes += frame.size();
    }
    stats_.received_packets += received_.size();
    return received_;
  }

  int descriptor() const override { return socket_->descriptor(); }
  Address local_address() const override { return {}; }
  const LinkStats& stats() const override { return stats_; }

 private:
  std::unique_ptr<PacketSocket> socket_;
  std::vector<iovec> pieces_;
  std::vector<std::span<const iovec>> frames_;
  std::vector<Incoming> received_;
  LinkStats stats_;
};

}  // namespace

Result<PacketLink> open_packet_link(const PacketSocketOptions& options) {
  auto socket = PacketSocket::open(options);
  if (!socket) return tl::unexpected(socket.error());
  const std::uint64_t mac = (*socket)->mac();
  return PacketLink{std::make_unique<Packets>(std::move(*socket)), mac};
}

}  // namespace netfold::link
