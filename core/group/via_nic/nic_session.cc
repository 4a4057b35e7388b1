#include "group/via_nic/nic_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "netfold_nic.h"
#include "numbers/kernels.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;

constexpr Nanoseconds kPollPeriod = 50 * kMicrosecond;  // of a NIC without interrupts
constexpr Nanoseconds kNicLinger = 2 * kSecond;         // at the end, for neighbours that miss a frame
constexpr Nanoseconds kLeavePeriod = kMillisecond;      // between two looks at that
// The clocks of simulated neighbours are processes, which run unevenly. At 200 MHz it is half a millisecond.
constexpr std::uint32_t kLinkTimeoutCycles = 100'000;
constexpr std::uint32_t kRequestTimeout = 0xffffffff;  // wall-clock time decides, not the number of cycles
constexpr double kDeviceHz = 200e6;
constexpr Ticket kEndpointsTicket = 0;  // of this session's own all-gather; the driver's tickets begin at 1

// The NIC runs such a request; the peers run all others.
struct ForNic final : Prepared {};

// A endpoint: the address in two numbers, the shape, the number of the ring.
enum EndpointPart { kLowAddress, kHighAddress, kShape, kRing };

std::int32_t shape_word(const NicShape& shape) {
  return static_cast<std::int32_t>(shape.block | shape.mantissa << 8 | (shape.has_bfp ? 1u << 12 : 0u));
}

template <class Endpoint>
std::uint64_t address_of(const Endpoint& endpoint) {
  return std::uint64_t{static_cast<std::uint32_t>(endpoint[kHighAddress])} << 32 |
         static_cast<std::uint32_t>(endpoint[kLowAddress]);
}

}  // namespace

std::size_t NicSession::Work::slices() const {
  return std::max<std::size_t>(1, (request.count + kSliceElements - 1) / kSliceElements);
}

std::size_t NicSession::Work::slice_elements(std::size_t slice) const {
  return std::min(kSliceElements, request.count - slice * kSliceElements);
}

NicSession::NicSession(NicSessionOptions options, std::unique_ptr<PeerSession> peers,
                       std::unique_ptr<link::PciDevice> device)
    : options_(options),
      peers_(std::move(peers)),
      device_(std::move(device)),
      driver_(*device_),
      own_endpoint_{static_cast<std::int32_t>(options.own_address),
                    static_cast<std::int32_t>(options.own_address >> 32), shape_word(options.shape),
                    static_cast<std::int32_t>(options.ring_number)},
      endpoints_(static_cast<std::size_t>(options.peers.world)),
      counters_{{{NETFOLD_NIC_CYCLES_BUSY},
                 {NETFOLD_NIC_FRAMES_SENT},
                 {NETFOLD_NIC_FRAMES_RESENT},
                 {NETFOLD_NIC_DROPS_CRC},
                 {NETFOLD_NIC_FRAMES_RECEIVED}}} {
  ask_for_endpoints();
}

// Gets every rank's endpoint by an all-gather among the ranks.
void NicSession::ask_for_endpoints() {
  CollectiveRequest request{own_endpoint_.data(), endpoints_.data(), own_endpoint_.size(), ElementType::kInt32,
                            Format::kInt32};
  request.collective = schedule::Collective::kAllGather;
  auto prepared = peers_->prepare(request);
  peers_->submit(kEndpointsTicket, request, std::move(prepared).value());
}

Result<void> NicSession::check_endpoints() const {
  for (std::size_t rank = 0; rank < endpoints_.size(); ++rank) {
    if (endpoints_[rank][kShape] != own_endpoint_[kShape]) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("the NIC of rank {} has another shape of bfp than that of rank {}: build all of a ring "
                              "alike",
                              rank, options_.peers.rank),
                  static_cast<int>(rank));
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (address_of(endpoints_[other]) != address_of(endpoints_[rank])) continue;
      return fail(ErrorCode::kMismatch,
                  fmt::format("the NICs of ranks {} and {} have the same Ethernet address: give each rank a NIC of its "
                              "own in NETFOLD_NIC",
                              other, rank),
                  static_cast<int>(rank));
    }
  }
  return {};
}

bool NicSession::serves(const CollectiveRequest& request) const {
  const bool bfp = request.format == Format::kBfp;
  const NicShape& shape = options_.shape;
  return request.collective == schedule::Collective::kAllReduce && request.algorithm.name == "ring" &&
         request.type == ElementType::kFp32 && (bfp || request.format == Format::kFp32) && options_.peers.world > 1 &&
         (!bfp || (shape.has_bfp && request.bfp.block == shape.block && request.bfp.mantissa == shape.mantissa)) &&
         agreed_bfp_.value_or(bfp) == bfp;
}

Result<std::unique_ptr<Prepared>> NicSession::prepare(const CollectiveRequest& request) {
  if (const auto valid = group::check(request); !valid) return tl::unexpected(valid.error());
  if (!serves(request)) return peers_->prepare(request);
  agreed_bfp_ = request.format == Format::kBfp;
  return std::make_unique<ForNic>();
}

void NicSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) {
  if (dynamic_cast<ForNic*>(prepared.get()) == nullptr) {
    return peers_->submit(ticket, request, std::move(prepared));
  }
  has_begun_ = has_begun_ || works_.empty();
  works_.push_back({ticket, request, std::vector<float>(request.count)});
}

std::vector<Ticket> NicSession::take_finished() {
  std::vector<Ticket> finished = std::exchange(finished_, {});
  for (const Ticket ticket : peers_->take_finished()) {
    if (ticket == kEndpointsTicket) {
      has_endpoints_ = true;
    } else {
      finished.push_back(ticket);
    }
  }
  return finished;
}

// --- Progress ---

Result<bool> NicSession::pump(Nanoseconds now) {
  const auto pumped = peers_->pump(now);
  if (!pumped) return pumped;
  if (std::exchange(has_begun_, false)) last_progress_ = now;
  if (!works_.empty() && time_ != 0) wall_ += now - time_;
  time_ = now;
  if (works_.empty() || !has_endpoints_) return pumped;
  if (!is_bfp_) {
    if (const auto joined = join_ring(); !joined) return tl::unexpected(joined.error());
  }
  const auto posted = post();
  if (!posted) return posted;
  bool moved = *pumped || *posted;
  if (std::exchange(is_interrupted_, false) || device_->interrupt() < 0 || now - last_look_ >= kLookPeriod) {
    const auto ended = take_ended();
    if (!ended) return ended;
    moved = moved || *ended;
  }
  if (now - last_look_ >= kLookPeriod) {
    if (const auto looked = look(now); !looked) return tl::unexpected(looked.error());
  }
  return moved;
}

Result<void> NicSession::join_ring() {
  if (auto good = check_endpoints(); !good) return good;
  const auto rank = static_cast<std::size_t>(options_.peers.rank), world = endpoints_.size();
  const auto number = static_cast<std::uint32_t>(endpoints_[0][kRing]);
  is_bfp_ = works_.front().request.format == Format::kBfp;
  const auto joined = driver_.join({.position = static_cast<unsigned>(rank),
                                    .size = static_cast<unsigned>(world),
                                    .bfp = *is_bfp_,
                                    .ring = static_cast<std::uint16_t>(number),
                                    .epoch = static_cast<std::uint8_t>(number >> 16),
                                    .own = options_.own_address,
                                    .right = address_of(endpoints_[(rank + 1) % world]),
                                    .left = address_of(endpoints_[(rank + world - 1) % world]),
                                    .request_timeout = kRequestTimeout,
                                    .link_timeout = kLinkTimeoutCycles});
  if (!joined) return joined;
  if (auto read = read_counters(); !read) return read;
  for (Counter& counter : counters_) counter.sum = 0;  // they count since the NIC's power came on
  return {};
}

std::span<std::byte> NicSession::slot(std::size_t number) {
  return device_->memory().subspan(number % kNicSlots * kNicSlotBytes, kNicSlotBytes);
}

// The same slices as in software, so that every element is folded in the same order. The sums of a slice take its place
// in the slot.
Result<bool> NicSession::post() {
  bool moved = false;
  for (Work& work : works_) {
    for (; work.posted < work.slices(); ++work.posted) {
      if (posted_ - ended_ == kNicSlots) return moved;
      const std::size_t count = work.slice_elements(work.posted);
      const auto* const from = static_cast<const float*>(work.request.in) + work.posted * kSliceElements;
      if (count > 0) std::memcpy(slot(posted_).data(), from, count * sizeof(float));
      const std::uint64_t address = device_->memory_address() + posted_ % kNicSlots * kNicSlotBytes;
      const auto posted =
          driver_.post(address, address, static_cast<std::uint32_t>(count), static_cast<std::uint16_t>(posted_));
      if (!posted) return posted;
      if (!*posted) return moved;
      ++posted_;
      moved = true;
    }
  }
  return moved;
}

Result<bool> NicSession::take_ended() {
  for (bool moved = false;; moved = true) {
    const auto ended = driver_.completion();
    if (!ended) return tl::unexpected(ended.error());
    if (!*ended) return moved;
    if (const auto done = end_slice(**ended); !done) return tl::unexpected(done.error());
    last_progress_ = time_;
  }
}

Result<void> NicSession::end_slice(const NicEnd& ended) {
  if (works_.empty() || ended.tag != static_cast<std::uint16_t>(ended_)) {
    return fail(ErrorCode::kSystem, fmt::format("rank {}'s NIC says that request {} has ended, which is not the oldest "
                                                "one in progress",
                                                options_.peers.rank, ended.tag));
  }
  if (ended.status != NETFOLD_NIC_DONE) {
    return fail(ErrorCode::kPeerFailed,
                fmt::format("rank {}'s NIC ended a request with status {}: its neighbours in the ring sent something "
                            "else, or nothing; all ranks must ask for the same all-reduces",
                            options_.peers.rank, name_of_nic_status(ended.status)));
  }
  Work& work = works_.front();
  const std::size_t count = work.slice_elements(work.ended);
  if (count > 0) {
    std::memcpy(work.sums.data() + work.ended * kSliceElements, slot(ended_).data(), count * sizeof(float));
  }
  ++ended_;
  if (++work.ended < work.slices()) return {};
  if (const auto read = read_counters(); !read) return read;
  finish(work);
  works_.pop_front();
  return {};
}

void NicSession::finish(Work& work) {
  if (work.request.average) {
    numbers::kernels().divide_fp32(work.sums.data(), static_cast<float>(options_.peers.world), work.sums.size(),
                                   work.sums.data());
  }
  if (!work.sums.empty()) std::memcpy(work.request.out, work.sums.data(), work.sums.size() * sizeof(float));
  ++requests_;
  finished_.push_back(work.ticket);
}

Result<void> NicSession::read_counters() {
  for (Counter& counter : counters_) {
    const auto value = driver_.read(counter.offset);
    if (!value) return tl::unexpected(value.error());
    counter.sum += *value - counter.last;
    counter.last = *value;
  }
  return {};
}

// Whether data still move.
Result<void> NicSession::look(Nanoseconds now) {
  last_look_ = now;
  const std::uint64_t before = frames_received_.sum;
  if (auto read = read_counters(); !read) return read;
  if (frames_received_.sum != before) last_progress_ = now;
  if (works_.empty() || now - last_progress_ <= options_.peers.timeout) return {};
  const int left = (options_.peers.rank + options_.peers.world - 1) % options_.peers.world;
  return fail(ErrorCode::kTimeout,
              fmt::format("rank {}: no data came through the ring of NICs for {:g} s; rank {} sends to this rank",
                          options_.peers.rank, to_seconds(options_.peers.timeout), left),
              left);
}

// --- The end ---

std::vector<Ticket> NicSession::abort(const Error& error, Nanoseconds now) {
  std::vector<Ticket> tickets;
  for (const Work& work : works_) tickets.push_back(work.ticket);
  // The NIC uses only memory of its own. If it does not answer, the end of this process resets it.
  if (!works_.empty()) static_cast<void>(driver_.reset());
  works_.clear();
  for (const Ticket ticket : peers_->abort(error, now)) {
    if (ticket != kEndpointsTicket) tickets.push_back(ticket);
  }
  return tickets;
}

bool NicSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  if (closing_since_ == 0) closing_since_ = now;
  time_ = now;
  if (is_bfp_ && now - closing_since_ <= kNicLinger && driver_.link_is_idle() == false) return false;
  return peers_->leave(error, now);
}

// --- Waiting ---

Nanoseconds NicSession::deadline() const {
  if (closing_since_ != 0) return std::min(peers_->deadline(), time_ + kLeavePeriod);
  if (works_.empty() || !has_endpoints_) return peers_->deadline();
  return std::min(peers_->deadline(), device_->interrupt() < 0 ? time_ + kPollPeriod : last_look_ + kLookPeriod);
}

void NicSession::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({device_->interrupt(), POLLIN, 0});
  peers_->add_polls(polls);
}

void NicSession::on_wake(std::span<const pollfd> polls) {
  if (polls.empty()) return;
  if (polls[0].revents != 0) {
    device_->clear_interrupt();
    is_interrupted_ = true;
  }
  peers_->on_wake(polls.subspan(1));
}

nlohmann::json NicSession::counters() const {
  nlohmann::json counters = peers_->counters();
  const double wall_s = to_seconds(wall_);
  const auto cycles = static_cast<double>(cycles_.sum);
  counters["nic_requests"] = requests_;
  counters["nic_cycles"] = cycles_.sum;
  counters["nic_wall_s"] = wall_s;
  counters["nic_cycles_per_s"] = wall_s > 0 ? cycles / wall_s : 0.0;
  counters["nic_time_200_mhz_s"] = cycles / kDeviceHz;
  counters["nic_frames_sent"] = frames_sent_.sum;
  counters["nic_frames_resent"] = frames_resent_.sum;
  counters["nic_drops_crc"] = drops_crc_.sum;
  return counters;
}

}  // namespace netfold::group
