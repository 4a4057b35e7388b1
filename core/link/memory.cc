#include "link/memory.h"

#include <cassert>

namespace netfold::link {

class MemoryLink final : public Link {
 public:
  MemoryLink(MemoryNetwork& network, std::uint16_t port) : network_(network), local_{0, port} {
    assert(!network.queues_.contains(port));
    network.queues_[port];
  }
  ~MemoryLink() override { network_.queues_.erase(local_.port); }
  MemoryLink(const MemoryLink&) = delete;

  std::size_t send(std::span<const Outgoing> batch) override {
    for (const Outgoing& datagram : batch) {
      stats_.sent_bytes += datagram.size_bytes();
      ++stats_.sent_packets;
      const auto queue = network_.queues_.find(datagram.to.port);
      if (queue == network_.queues_.end()) continue;  // no link has this address: lost, as with UDP
      std::vector<std::byte> bytes(datagram.head.begin(), datagram.head.end());
      bytes.insert(bytes.end(), datagram.body.begin(), datagram.body.end());
      bytes.insert(bytes.end(), datagram.tail.begin(), datagram.tail.end());
      queue->second.push_back({local_, std::move(bytes)});
    }
    return batch.size();
  }

  std::span<const Incoming> receive(std::size_t most) override {
    auto& queue = network_.queues_[local_.port];
    held_.clear();
    received_.clear();
    while (!queue.empty() && held_.size() < most) {
      held_.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    for (const auto& datagram : held_) {
      received_.push_back({datagram.from, datagram.bytes});
      stats_.received_bytes += datagram.bytes.size();
      ++stats_.received_packets;
    }
    return received_;
  }

  int descriptor() const override { return -1; }
  Address local_address() const override { return local_; }
  const LinkStats& stats() const override { return stats_; }

 private:
  MemoryNetwork& network_;
  Address local_;
  LinkStats stats_;
  std::vector<MemoryNetwork::Datagram> held_;  // what receive() handed out last
  std::vector<Incoming> received_;
};

std::unique_ptr<Link> MemoryNetwork::open(std::uint16_t port) {
  return std::make_unique<MemoryLink>(*this, port);
}

}  // namespace netfold::link
