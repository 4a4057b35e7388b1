#include "link/dpdk/dpdk_port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace netfold::link {
namespace {

constexpr std::size_t kSendAtOnce = 64;

// Bytes of `frame` as what the mbuf holds.
void set_data(rte_mbuf* mbuf, const Frame& frame) {
  mbuf->data_off = static_cast<std::uint16_t>(frame.bytes - static_cast<std::byte*>(mbuf->buf_addr));
  mbuf->data_len = static_cast<std::uint16_t>(frame.size_bytes);
}

// The one mbuf, or chain of two, that the driver takes for a frame.
rte_mbuf* chain(const OutgoingFrame& frame, bool takes_chains) {
  rte_mbuf* const head = mbuf_of(frame.head.buffer);
  set_data(head, frame.head);
  head->ol_flags = 0;
  head->pkt_len = static_cast<std::uint32_t>(frame.size_bytes());
  if (frame.body.buffer == nullptr) return head;
  if (takes_chains) {
    rte_mbuf* const body = mbuf_of(frame.body.buffer);
    set_data(body, frame.body);
    head->next = body;
    head->nb_segs = 2;
  } else {
    std::memcpy(frame.head.bytes + frame.head.size_bytes, frame.body.bytes, frame.body.size_bytes);
    head->data_len = static_cast<std::uint16_t>(frame.size_bytes());
  }
  return head;
}

}  // namespace

DpdkPort::DpdkPort(DpdkDevice& device, std::uint16_t thread, bool shares_send_queue)
    : device_(device),
      shares_send_queue_(shares_send_queue),
      receive_queue_(static_cast<std::uint16_t>(thread % device.receive_queues)),
      send_queue_(static_cast<std::uint16_t>(thread % device.send_queues)) {}

std::size_t DpdkPort::receive(std::span<Frame> into) {
  std::array<rte_mbuf*, 64> mbufs;
  const auto most = static_cast<std::uint16_t>(std::min(into.size(), mbufs.size()));
  const std::uint16_t count = rte_eth_rx_burst(device_.id, receive_queue_, mbufs.data(), most);
  std::size_t kept = 0;
  for (std::uint16_t i = 0; i < count; ++i) {
    if (mbufs[i]->nb_segs > 1 && rte_pktmbuf_linearize(mbufs[i]) != 0) {
      unreadable_.add(1);
      rte_pktmbuf_free(mbufs[i]);
      continue;
    }
    into[kept++] = frame_of(mbufs[i], device_.number);
  }
  return kept;
}

std::size_t DpdkPort::send(std::span<const OutgoingFrame> batch) {
  if (shares_send_queue_) rte_spinlock_lock(&device_.send_lock);
  std::size_t taken = 0;
  while (taken < batch.size()) {
    const auto some = batch.subspan(taken, std::min(kSendAtOnce, batch.size() - taken));
    const std::size_t sent = send_some(some);
    taken += sent;
    if (sent < some.size()) break;
  }
  if (shares_send_queue_) rte_spinlock_unlock(&device_.send_lock);
  return taken;
}

std::size_t DpdkPort::send_some(std::span<const OutgoingFrame> some) {
  std::array<rte_mbuf*, kSendAtOnce> mbufs;
  for (std::size_t i = 0; i < some.size(); ++i) mbufs[i] = chain(some[i], device_.takes_chains);
  const std::size_t taken =
      rte_eth_tx_burst(device_.id, send_queue_, mbufs.data(), static_cast<std::uint16_t>(some.size()));
  if (!device_.takes_chains) {
    for (std::size_t i = 0; i < taken; ++i) {
      if (some[i].body.buffer != nullptr) rte_pktmbuf_free_seg(mbuf_of(some[i].body.buffer));
    }
  }
  for (std::size_t i = taken; i < some.size(); ++i) {  // the caller's again, as two buffers
    mbufs[i]->next = nullptr;
    mbufs[i]->nb_segs = 1;
  }
  return taken;
}

PortStats DpdkPort::stats() const {
  rte_eth_stats raw{};
  rte_eth_stats_get(device_.id, &raw);
  return {
      raw.ipackets, raw.ibytes, raw.opackets, raw.obytes, raw.imissed + raw.rx_nombuf, raw.ierrors + unreadable_.get()};
}

static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) % 4 == 0, "as rte_ring_elem wants it");

DpdkInbox::~DpdkInbox() {
  Frame frame;
  while (rte_ring_dequeue_elem(ring_, &frame, sizeof frame) == 0) rte_pktmbuf_free(mbuf_of(frame.buffer));
  rte_ring_free(ring_);
}

std::size_t DpdkInbox::receive(std::span<Frame> into) {
  const unsigned count =
      rte_ring_sc_dequeue_burst_elem(ring_, into.data(), sizeof(Frame), static_cast<unsigned>(into.size()), nullptr);
  // Its count of references, where it will be released.
  for (unsigned i = 0; i < count; ++i) __builtin_prefetch(into[i].buffer, 1);
  return count;
}

std::size_t DpdkInbox::send(std::span<const OutgoingFrame> batch) {
  std::array<Frame, kSendAtOnce> frames;
  std::size_t taken = 0;
  while (taken < batch.size()) {
    const std::size_t some = std::min(kSendAtOnce, batch.size() - taken);
    for (std::size_t i = 0; i < some; ++i) frames[i] = batch[taken + i].head;
    const unsigned sent =
        rte_ring_mp_enqueue_burst_elem(ring_, frames.data(), sizeof(Frame), static_cast<unsigned>(some), nullptr);
    taken += sent;
    if (sent < some) break;
  }
  return taken;
}

}  // namespace netfold::link
