#include "link/dpdk/ring_device.h"

#include <fmt/core.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>

#include <algorithm>
#include <array>

#include "link/dpdk/mbuf_pool.h"

namespace netfold::link {
namespace {

constexpr std::size_t kAtOnce = 64;

void drain(rte_ring* ring) {
  void* mbuf = nullptr;
  while (rte_ring_dequeue(ring, &mbuf) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(mbuf));
  rte_ring_free(ring);
}

}  // namespace

Result<std::unique_ptr<RingDevice>> RingDevice::create(std::size_t number, std::uint16_t queues, std::size_t frames) {
  auto device = std::make_unique<RingDevice>();
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    for (auto* const rings : {&device->to_switch_, &device->from_switch_}) {
      const std::string name = fmt::format("nf-{}-{}-{}", rings == &device->to_switch_ ? "in" : "out", number, queue);
      rte_ring* const ring = rte_ring_create(name.c_str(), static_cast<unsigned>(frames), SOCKET_ID_ANY,
                                             RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
      if (ring == nullptr) {
        return fail(ErrorCode::kSystem,
                    fmt::format("no memory for a port of {} frames: {}", frames, rte_strerror(rte_errno)));
      }
      rings->push_back(ring);
    }
  }
  const int id = rte_eth_from_rings(fmt::format("nf{}", number).c_str(), device->to_switch_.data(), queues,
                                    device->from_switch_.data(), queues, 0);
  if (id < 0) return fail(ErrorCode::kSystem, fmt::format("no port in memory: {}", rte_strerror(rte_errno)));
  device->id_ = static_cast<std::uint16_t>(id);
  return device;
}

RingDevice::~RingDevice() {
  for (rte_ring* const ring : to_switch_) drain(ring);
  for (rte_ring* const ring : from_switch_) drain(ring);
}

std::size_t RingDevice::offer(std::uint16_t queue, std::span<const Frame> frames) {
  std::array<void*, kAtOnce> mbufs;
  std::size_t taken = 0;
  while (taken < frames.size()) {
    const std::size_t some = std::min(kAtOnce, frames.size() - taken);
    for (std::size_t i = 0; i < some; ++i) {
      rte_mbuf* const mbuf = mbuf_of(frames[taken + i].buffer);
      mbuf->data_len = static_cast<std::uint16_t>(frames[taken + i].size_bytes);
      mbuf->pkt_len = frames[taken + i].size_bytes;
      mbufs[i] = mbuf;
    }
    const unsigned sent =
        rte_ring_sp_enqueue_burst(to_switch_[queue], mbufs.data(), static_cast<unsigned>(some), nullptr);
    taken += sent;
    if (sent < some) break;
  }
  return taken;
}

std::size_t RingDevice::collect(std::uint16_t queue, std::span<OutgoingFrame> into) {
  std::array<rte_mbuf*, kAtOnce> mbufs;
  const unsigned count = rte_ring_sc_dequeue_burst(from_switch_[queue], reinterpret_cast<void**>(mbufs.data()),
                                                   static_cast<unsigned>(std::min(kAtOnce, into.size())), nullptr);
  for (unsigned i = 0; i < count; ++i) {
    rte_mbuf* const head = mbufs[i];
    rte_mbuf* const body = head->next;
    into[i] = {frame_of(head, kNoPort), body == nullptr ? Frame{} : frame_of(body, kNoPort)};
    head->next = nullptr;  // two buffers again
    head->nb_segs = 1;
  }
  return count;
}

}  // namespace netfold::link
