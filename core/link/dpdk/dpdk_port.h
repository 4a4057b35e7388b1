// A port of DPDK as one thread uses it, and the ring by which threads hand each other frames.
#pragma once

#include <rte_ethdev.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_spinlock.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/counter.h"
#include "link/dpdk/mbuf_pool.h"

namespace netfold::link {

// A device that is set up and started; shared by the threads' ports.
struct DpdkDevice {
  PortNumber number = 0;
  std::uint16_t id = 0;  // DPDK's
  std::string name;
  std::string interface;  // the kernel's, that it is about; empty: none
  std::uint16_t receive_queues = 1, send_queues = 1;
  bool takes_chains = false;  // of several buffers a frame; else they are copied into one
  std::atomic<bool> is_up{true};
  rte_spinlock_t send_lock = RTE_SPINLOCK_INITIALIZER;  // taken only where threads share a send queue
};

class DpdkPort final : public Port {
 public:
  // A queue of its own in each direction, if the device has so many. Several threads may share a send queue, but only
  // one may receive from a queue: that is the caller's to see to.
  DpdkPort(DpdkDevice& device, std::uint16_t thread, bool shares_send_queue);

  std::size_t receive(std::span<Frame> into) override;
  std::size_t send(std::span<const OutgoingFrame> batch) override;
  bool is_up() const override { return device_.is_up.load(std::memory_order_relaxed); }
  std::string name() const override { return device_.name; }
  PortStats stats() const override;  // of the whole device

 private:
  std::size_t send_some(std::span<const OutgoingFrame> some);

  DpdkDevice& device_;
  bool shares_send_queue_;
  std::uint16_t receive_queue_, send_queue_;
  Counter unreadable_;  // frames of several buffers that fit no single one
};

// Many send, one receives. The known facts of a frame go along with it, so that the receiver need not look for it in
// the buffer's header, which another core has just written.
class DpdkInbox final : public Port {
 public:
  explicit DpdkInbox(rte_ring* ring) : ring_(ring) {}
  ~DpdkInbox() override;

  std::size_t receive(std::span<Frame> into) override;
  std::size_t send(std::span<const OutgoingFrame> batch) override;
  std::string name() const override { return ring_->name; }
  PortStats stats() const override { return {}; }

 private:
  rte_ring* ring_;
};

}  // namespace netfold::link
