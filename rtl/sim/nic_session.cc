#include "nic_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "numbers/kernels.h"

namespace netfold::rtl {
namespace {

using group::CollectiveRequest;
using group::Prepared;
using group::Ticket;
using numbers::ElementType;
using numbers::Format;

constexpr unsigned kTurnCycles = 64;          // between two checks of the link
constexpr std::uint64_t kQuietCycles = 1024;  // without a frame: then other processes get the core
constexpr std::uint64_t kSettleCycles =
    16384;  // after the last frame, so that acknowledgements go: two periods of them
constexpr Nanoseconds kNap = kMillisecond, kLongNap = 100 * kMillisecond;
constexpr Nanoseconds kLinger = 2 * kSecond;           // at the end, for neighbours that miss a frame
constexpr std::uint32_t kLinkTimeoutCycles = 100000;   // neighbours' clocks are processes, which run unevenly
constexpr std::uint32_t kRequestTimeout = 0xffffffff;  // wall-clock time decides, not the number of cycles
constexpr double kDeviceHz = 200e6;
constexpr Ticket kPortsTicket = 0;  // of this session's own all-gather; the driver's tickets begin at 1

// Whether the NIC runs a request; the peers run all others.
struct ForNic final : Prepared {};

}  // namespace

std::size_t NicSession::Work::slices() const {
  return std::max<std::size_t>(1, (request.count + group::kSliceElements - 1) / group::kSliceElements);
}

NicSession::NicSession(group::PeerSessionOptions options, std::unique_ptr<group::PeerSession> peers,
                       std::unique_ptr<link::Link> link, std::vector<link::Address> addresses)
    : options_(options),
      peers_(std::move(peers)),
      link_(std::move(link)),
      addresses_(std::move(addresses)),
      own_port_(link_->local_address().port),
      ports_(addresses_.size()) {
  ask_for_ports();
}

// Gets every rank's UDP port by an all-gather among the ranks.
void NicSession::ask_for_ports() {
  CollectiveRequest request{&own_port_, ports_.data(), 1, ElementType::kInt32, Format::kInt32};
  request.collective = schedule::Collective::kAllGather;
  auto prepared = peers_->prepare(request);
  peers_->submit(kPortsTicket, request, std::move(prepared).value());
}

void NicSession::take_ports() {
  for (std::size_t i = 0; i < addresses_.size(); ++i) addresses_[i].port = static_cast<std::uint16_t>(ports_[i]);
  has_ports_ = true;
}

bool NicSession::serves(const CollectiveRequest& request) const {
  const bool bfp = request.format == Format::kBfp;
  return request.collective == schedule::Collective::kAllReduce && request.algorithm.name == "ring" &&
         request.type == ElementType::kFp32 && (bfp || request.format == Format::kFp32) && options_.world > 1 &&
         (!bfp || (request.bfp.block == NETFOLD_RTL_BLOCK && request.bfp.mantissa == NETFOLD_RTL_MANTISSA)) &&
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
    if (ticket == kPortsTicket) {
      take_ports();
    } else {
      finished.push_back(ticket);
    }
  }
  return finished;
}

// --- Progress ---

Result<bool> NicSession::pump(Nanoseconds now) {
  if (const auto pumped = peers_->pump(now); !pumped) return pumped;
  if (std::exchange(has_begun_, false)) last_progress_ = now;
  const bool is_busy = !works_.empty();
  if (is_busy) nic_wall_ += now - time_;
  time_ = now;
  if (!has_ports_) return false;
  if (is_busy && !is_bfp_) join_ring();
  const std::uint64_t before = device_.cycles();
  post();
  const bool had_traffic = turn(kTurnCycles);
  if (const auto ended = take_ended(); !ended) return tl::unexpected(ended.error());
  quiet_cycles_ = had_traffic ? 0 : quiet_cycles_ + kTurnCycles;
  if (is_busy) {
    nic_cycles_ += device_.cycles() - before;
    if (const auto goes_on = check_progress(now); !goes_on) return tl::unexpected(goes_on.error());
  }
  return quiet_cycles_ < kQuietCycles;
}

void NicSession::join_ring() {
  is_bfp_ = works_.front().request.format == Format::kBfp;
  device_.join({.position = static_cast<unsigned>(options_.rank),
                .size = static_cast<unsigned>(options_.world),
                .bfp = *is_bfp_,
                .request_timeout = kRequestTimeout,
                .link_timeout = kLinkTimeoutCycles});
}

// Runs some cycles, with the frames of the link. True if a frame arrived or left.
bool NicSession::turn(unsigned cycles) {
  bool had_traffic = false;
  for (const auto& datagram : link_->receive(64)) {
    device_.deliver(Frame(datagram.bytes.begin(), datagram.bytes.end()));
    had_traffic = true;
  }
  std::vector<Frame> leaving;
  for (unsigned i = 0; i < cycles; ++i) {
    device_.step(true);
    while (auto frame = device_.sent()) leaving.push_back(std::move(*frame));
  }
  had_traffic = had_traffic || !leaving.empty();
  exchange(leaving);
  return had_traffic;
}

// Sends frames to the rank that their Ethernet address names. If the socket does not accept a frame, it is lost, and
// the NIC sends it again.
void NicSession::exchange(const std::vector<Frame>& leaving) {
  std::vector<link::Outgoing> batch;
  for (const Frame& frame : leaving) {
    std::array<std::uint8_t, 6> to;
    std::memcpy(to.data(), frame.data(), to.size());
    const std::size_t rank = std::size_t{to[4]} << 8 | to[5];
    if (rank < addresses_.size() && to == address_of_rank(static_cast<unsigned>(rank))) {
      batch.push_back({addresses_[rank], frame, {}, {}});
    }
  }
  if (!batch.empty()) link_->send(batch);
}

// The same slices as in software, so that every element is folded in the same order.
void NicSession::post() {
  for (Work& work : works_) {
    for (; work.posted < work.slices(); ++work.posted) {
      const std::size_t first = work.posted * group::kSliceElements;
      const std::size_t count = std::min(group::kSliceElements, work.request.count - first);
      if (!device_.post(static_cast<const float*>(work.request.in) + first, work.sums.data() + first,
                        static_cast<std::uint32_t>(count), next_tag_)) {
        return;
      }
      ++next_tag_;
    }
  }
}

Result<void> NicSession::take_ended() {
  while (const auto ended = device_.completion()) {
    if (works_.empty()) continue;
    if (ended->status != NETFOLD_NIC_DONE) {
      return fail(ErrorCode::kPeerFailed,
                  fmt::format("rank {}'s NIC ended a request with status {}: its neighbours in the ring sent "
                              "something else, or nothing; all ranks must ask for the same all-reduces",
                              options_.rank, ended->status));
    }
    Work& work = works_.front();
    if (++work.ended == work.slices()) {
      finish(work);
      works_.pop_front();
    }
  }
  return {};
}

void NicSession::finish(Work& work) {
  if (work.request.average) {
    numbers::kernels().divide_fp32(work.sums.data(), static_cast<float>(options_.world), work.sums.size(),
                                   work.sums.data());
  }
  if (!work.sums.empty()) std::memcpy(work.request.out, work.sums.data(), work.sums.size() * sizeof(float));
  ++nic_requests_;
  finished_.push_back(work.ticket);
}

// Whether data still move.
Result<void> NicSession::check_progress(Nanoseconds now) {
  if (device_.host_beats() != host_beats_) {
    host_beats_ = device_.host_beats();
    last_progress_ = now;
  }
  if (works_.empty() || now - last_progress_ <= options_.timeout) return {};
  const int left = (options_.rank + options_.world - 1) % options_.world;
  return fail(ErrorCode::kTimeout,
              fmt::format("rank {}: no data came through the ring of NICs for {:g} s; rank {} sends to this rank",
                          options_.rank, to_seconds(options_.timeout), left),
              left);
}

// --- The end ---

std::vector<Ticket> NicSession::abort(const Error& error, Nanoseconds now) {
  std::vector<Ticket> tickets;
  for (const Work& work : works_) tickets.push_back(work.ticket);
  if (!works_.empty()) device_.reset();  // before the memory is freed
  works_.clear();
  for (const Ticket ticket : peers_->abort(error, now)) {
    if (ticket != kPortsTicket) tickets.push_back(ticket);
  }
  return tickets;
}

bool NicSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  if (closing_since_ == 0) closing_since_ = now;
  time_ = now;
  if (is_bfp_ && !link_is_idle() && now - closing_since_ <= kLinger) {
    turn(kTurnCycles);
    return false;
  }
  return peers_->leave(error, now);
}

// --- Waiting ---

bool NicSession::link_is_idle() {
  return (device_.read(NETFOLD_NIC_STATUS) >> NETFOLD_NIC_STATUS_LINK_IDLE_SHIFT & 1) != 0;
}

// Without requests, and when the neighbours have their answers, the clock stands still between two long sleeps. While
// this rank waits for neighbours, it runs slowly.
Nanoseconds NicSession::deadline() const {
  if (closing_since_ != 0) return time_;
  const bool is_settled = works_.empty() && quiet_cycles_ > kSettleCycles;
  return std::min(peers_->deadline(), time_ + (is_settled || !has_ports_ ? kLongNap : kNap));
}

void NicSession::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({link_->descriptor(), POLLIN, 0});
  peers_->add_polls(polls);
}

void NicSession::on_wake(std::span<const pollfd> polls) {
  if (!polls.empty()) peers_->on_wake(polls.subspan(1));
}

nlohmann::json NicSession::counters() const {
  nlohmann::json counters = peers_->counters();
  const double wall_s = to_seconds(nic_wall_);
  counters["nic_requests"] = nic_requests_;
  counters["nic_cycles"] = nic_cycles_;
  counters["nic_wall_s"] = wall_s;
  counters["nic_cycles_per_s"] = wall_s > 0 ? static_cast<double>(nic_cycles_) / wall_s : 0.0;
  counters["nic_time_200_mhz_s"] = static_cast<double>(nic_cycles_) / kDeviceHz;
  return counters;
}

}  // namespace netfold::rtl
