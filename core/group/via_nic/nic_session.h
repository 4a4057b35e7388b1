// The session of a rank with a smart NIC: FP32 all-reduces by the ring go through the NIC, other collectives through a
// session among ranks. Tensors pass through memory that the NIC may use, slice by slice.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "group/session.h"
#include "group/via_nic/nic_driver.h"
#include "group/via_peers/peer_session.h"

namespace netfold::group {

struct NicSessionOptions {
  PeerSessionOptions peers;
  NicShape shape;
  std::uint64_t own_address = 0;  // of this rank's NIC
  std::uint32_t ring_number = 0;  // 24 bits; rank 0's is the ring's, so that frames of former rings miss this one
};

// The memory that the NIC uses: a slice for each request.
constexpr std::size_t kNicSlots = 16;
constexpr std::size_t kNicSlotBytes = kSliceElements * sizeof(float);
constexpr std::size_t kNicMemoryBytes = kNicSlots * kNicSlotBytes;

class NicSession final : public Session {
 public:
  // The device has kNicMemoryBytes of memory.
  NicSession(NicSessionOptions options, std::unique_ptr<PeerSession> peers, std::unique_ptr<link::PciDevice> device);

  Result<bool> move() override { return peers_->move(); }
  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override;
  bool is_idle() const override { return works_.empty() && peers_->is_idle(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  Nanoseconds deadline() const override;
  bool arm() override { return peers_->arm(); }
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return peers_->life_line(); }
  bool has_unsent() const override { return peers_->has_unsent(); }
  // Counters of the ranks' session and of the NIC: nic_cycles (with requests in progress), nic_wall_s (their wall-clock
  // time), nic_cycles_per_s, nic_time_200_mhz_s, nic_requests, nic_frames_sent, nic_frames_resent, nic_drops_crc.
  nlohmann::json counters() const override;

 private:
  // What ranks tell each other, as numbers of 32 bits.
  using Endpoint = std::array<std::int32_t, 4>;
  // One all-reduce. A separate buffer holds its sums until the end, so that a failure leaves the tensor unchanged.
  struct Work {
    Ticket ticket;
    CollectiveRequest request;
    std::vector<float> sums;
    std::size_t posted = 0, ended = 0;  // slices

    std::size_t slices() const;
    std::size_t slice_elements(std::size_t slice) const;
  };
  // A counter of the NIC, which wraps, and its sum since the session began.
  struct Counter {
    std::uint32_t offset, last = 0;
    std::uint64_t sum = 0;
  };

  bool serves(const CollectiveRequest& request) const;
  void ask_for_endpoints();
  Result<void> check_endpoints() const;
  Result<void> join_ring();
  Result<bool> post();
  Result<bool> take_ended();
  Result<void> end_slice(const NicEnd& ended);
  void finish(Work& work);
  Result<void> look(Nanoseconds now);
  Result<void> read_counters();
  std::span<std::byte> slot(std::size_t number);

  const NicSessionOptions options_;
  std::unique_ptr<PeerSession> peers_;
  std::unique_ptr<link::PciDevice> device_;
  NicDriver driver_;
  Endpoint own_endpoint_;
  std::vector<Endpoint> endpoints_;  // by rank, once has_endpoints_
  bool has_endpoints_ = false;

  std::optional<bool> is_bfp_;  // the format of the ring, after its set-up
  std::deque<Work> works_;
  std::vector<Ticket> finished_;
  std::size_t posted_ = 0, ended_ = 0;  // slices, since the session began: their tags and slots
  bool is_interrupted_ = false;
  bool has_begun_ = false;  // something was submitted since the last pump
  Nanoseconds time_ = 0, last_progress_ = 0, last_look_ = 0, closing_since_ = 0;

  std::uint64_t requests_ = 0;
  Nanoseconds wall_ = 0;
  std::array<Counter, 5> counters_;
  Counter &cycles_ = counters_[0], &frames_sent_ = counters_[1], &frames_resent_ = counters_[2],
          &drops_crc_ = counters_[3], &frames_received_ = counters_[4];

  std::optional<bool> agreed_bfp_;  // of prepare(): the ring has the format of its first all-reduce, on all ranks
};

}  // namespace netfold::group
