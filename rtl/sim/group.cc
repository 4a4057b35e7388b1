#include "group.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/collective/plans.h"
#include "link/fault_injector.h"
#include "link/udp.h"
#include "numbers/kernels.h"

namespace netfold::rtl {
namespace {

using engine::Completion;
using numbers::ElementType;
using numbers::Format;

constexpr unsigned kTurnCycles = 64;          // between two looks at the link
constexpr std::uint64_t kQuietCycles = 1024;  // without a frame: the others need the core more
constexpr std::uint64_t kSettleCycles =
    16384;  // after the last frame, so that acknowledgements go: two periods of them
constexpr Nanoseconds kNap = kMillisecond;
constexpr Nanoseconds kLinger = 2 * kSecond;           // when leaving, for neighbours that miss a frame
constexpr std::uint32_t kLinkTimeoutCycles = 100000;   // neighbours' clocks are processes: they run by fits and starts
constexpr std::uint32_t kRequestTimeout = 0xffffffff;  // the time here decides, not the number of cycles
constexpr double kDeviceHz = 200e6;

// Whose a ticket is, from one row of numbers: the NIC's, the host group's, or the host group's for who waits there.
enum Kind : std::uint64_t { kOwn, kHost, kHostAwaited, kKinds };

std::uint64_t ticket_of(Kind kind, std::uint64_t number) {
  return kKinds * number + kind;
}

}  // namespace

std::size_t Group::Work::slices() const {
  return std::max<std::size_t>(1, (request.count + engine::kSliceElements - 1) / engine::kSliceElements);
}

Group::Group(GroupOptions options) : options_(std::move(options)), completions_(options_.host.on_completion) {}

Result<std::unique_ptr<Group>> Group::open(GroupOptions options) {
  if (options.host.world > static_cast<int>(kMaxRing)) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("a ring of NICs has at most {} places, not {}", kMaxRing, options.host.world));
  }
  const auto faults = link::parse_faults(options.faults);
  if (!faults) return tl::unexpected(faults.error());
  std::unique_ptr<Group> group(new Group(std::move(options)));
  engine::HostGroupOptions host = group->options_.host;
  Group* const self = group.get();
  host.on_completion = [self] {
    while (const auto one = self->host_->next_completion(0))
      self->completions_.add({ticket_of(kHost, one->ticket)}, one->error);
  };
  auto opened = engine::HostGroup::open(std::move(host));
  if (!opened) return tl::unexpected(opened.error());
  group->host_ = std::move(*opened);
  auto bind = link::parse_address(group->host_->address());
  if (!bind) return tl::unexpected(bind.error());
  bind->port = 0;
  auto udp = link::open_udp({.bind = *bind});
  if (!udp) return tl::unexpected(udp.error());
  group->link_ = faults->any() ? link::inject_faults(std::move(*udp), *faults, &now) : std::move(*udp);
  return group;
}

Group::~Group() {
  close();
}

Result<void> Group::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  if (auto connected = host_->connect(addresses, keep_going); !connected) return connected;
  for (const std::string& address : addresses) {
    auto parsed = link::parse_address(address);
    if (!parsed) return tl::unexpected(parsed.error());
    peers_.push_back(*parsed);
  }
  if (auto met = meet(keep_going); !met) return met;
  thread_ = std::thread([this] { run(); });
  return {};
}

// Every rank's UDP port, by an all-gather of the host group.
Result<void> Group::meet(const std::function<bool()>& keep_going) {
  const std::int32_t own = link_->local_address().port;
  std::vector<std::int32_t> ports(peers_.size());
  engine::CollectiveOptions how;
  how.collective = schedule::Collective::kAllGather;
  const auto ticket = host_->submit({&own, ports.data(), 1, ElementType::kInt32, Format::kInt32}, how);
  if (!ticket) return tl::unexpected(ticket.error());
  std::optional<Completion> done;
  while (!(done = completions_.wait(ticket_of(kHost, *ticket), 100 * kMillisecond))) {
    if (keep_going && !keep_going()) return netfold::fail(ErrorCode::kTimeout, "told to give up");
  }
  if (done->error) return tl::unexpected(*done->error);
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].port = static_cast<std::uint16_t>(ports[i]);
  return {};
}

bool Group::serves(const engine::AllReduce& request, const engine::CollectiveOptions& options) const {
  const bool bfp = request.format == Format::kBfp;
  return options.collective == schedule::Collective::kAllReduce && options.algorithm == "ring" &&
         request.type == ElementType::kFp32 && (bfp || request.format == Format::kFp32) && options_.host.world > 1 &&
         (!bfp || (options.bfp.block == NETFOLD_RTL_BLOCK && options.bfp.mantissa == NETFOLD_RTL_MANTISSA)) &&
         agreed_bfp_.value_or(bfp) == bfp;
}

Result<Group::Ticket> Group::hand_over(const engine::AllReduce& request, const engine::CollectiveOptions& options,
                                       bool is_awaited) {
  if (const auto valid = engine::check(request); !valid) return tl::unexpected(valid.error());
  const std::lock_guard lock(mutex_);
  if (!serves(request, options)) {
    const auto ticket = is_awaited ? host_->submit_awaited(request, options) : host_->submit(request, options);
    if (!ticket) return ticket;
    return ticket_of(is_awaited ? kHostAwaited : kHost, *ticket);
  }
  const Ticket ticket = ticket_of(kOwn, ++last_ticket_);
  if (is_awaited) completions_.reserve(ticket);
  if (failure_) {
    completions_.add({ticket}, *failure_);
    return ticket;
  }
  agreed_bfp_ = request.format == Format::kBfp;  // the ring's format is that of its first all-reduce, on all ranks
  submitted_.push_back({ticket, request, {}});
  wakeup_.wake();
  return ticket;
}

std::optional<Completion> Group::wait(Ticket ticket, Nanoseconds timeout) {
  if (ticket % kKinds != kHostAwaited) return completions_.wait(ticket, timeout);
  auto completion = host_->wait(ticket / kKinds, timeout);
  if (completion) completion->ticket = ticket;
  return completion;
}

void Group::close(std::optional<Error> error) {
  is_closing_ = true;
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
  fail(Error{ErrorCode::kInvalidArgument, "this group has been closed: open another", kNoRank});
  if (host_) host_->close(std::move(error));
  completions_.close();
}

nlohmann::json Group::counters() const {
  nlohmann::json counters = host_->counters();
  const std::lock_guard lock(mutex_);
  const double wall_s = static_cast<double>(nic_wall_) / static_cast<double>(kSecond);
  counters["nic_requests"] = nic_requests_;
  counters["nic_cycles"] = nic_cycles_;
  counters["nic_wall_s"] = wall_s;
  counters["nic_cycles_per_s"] = wall_s > 0 ? static_cast<double>(nic_cycles_) / wall_s : 0.0;
  counters["nic_time_200_mhz_s"] = static_cast<double>(nic_cycles_) / kDeviceHz;
  return counters;
}

// --- The thread ---

void Group::run() {
  engine::set_up_thread(fmt::format("nf-nic-{}", options_.host.rank), options_.host.core);
  Nanoseconds closing_since = 0;
  for (;;) {
    take_submissions();
    if (is_closing_) {
      if (closing_since == 0) closing_since = now();
      if (!is_bfp_ || link_is_idle() || now() - closing_since > kLinger) return;
    }
    const Nanoseconds start = now();
    const std::uint64_t before = device_.cycles();
    const bool is_busy = !works_.empty();
    post();
    const bool had_traffic = turn(kTurnCycles);
    take_ended();
    quiet_cycles_ = had_traffic ? 0 : quiet_cycles_ + kTurnCycles;
    if (is_busy) {
      check();
      const std::lock_guard lock(mutex_);
      nic_cycles_ += device_.cycles() - before;
      nic_wall_ += now() - start;
    }
    rest();
  }
}

// Some cycles, with the frames of the link. True if any came or went.
bool Group::turn(unsigned cycles) {
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

// Frames to whom their Ethernet address names. What the socket does not take is lost, and sent again by the NIC.
void Group::exchange(std::vector<Frame>& leaving) {
  std::vector<link::Outgoing> batch;
  for (const Frame& frame : leaving) {
    std::array<std::uint8_t, 6> to;
    std::memcpy(to.data(), frame.data(), to.size());
    const std::size_t rank = std::size_t{to[4]} << 8 | to[5];
    if (rank < peers_.size() && to == address_of_rank(static_cast<unsigned>(rank))) {
      batch.push_back({peers_[rank], frame, {}, {}});
    }
  }
  if (!batch.empty()) link_->send(batch);
}

void Group::take_submissions() {
  std::deque<Work> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);
  }
  if (taken.empty()) return;
  if (works_.empty()) last_progress_ = now();
  if (!is_bfp_) {
    is_bfp_ = taken.front().request.format == Format::kBfp;
    device_.join({.position = static_cast<unsigned>(options_.host.rank),
                  .size = static_cast<unsigned>(options_.host.world),
                  .bfp = *is_bfp_,
                  .request_timeout = kRequestTimeout,
                  .link_timeout = kLinkTimeoutCycles});
  }
  for (Work& work : taken) {
    work.sums.resize(work.request.count);
    works_.push_back(std::move(work));
  }
}

// Slices as the software cuts them, so that every element is folded in the same order.
void Group::post() {
  for (Work& work : works_) {
    for (; work.posted < work.slices(); ++work.posted) {
      const std::size_t first = work.posted * engine::kSliceElements;
      const std::size_t count = std::min(engine::kSliceElements, work.request.count - first);
      if (!device_.post(static_cast<const float*>(work.request.in) + first, work.sums.data() + first,
                        static_cast<std::uint32_t>(count), next_tag_)) {
        return;
      }
      ++next_tag_;
    }
  }
}

void Group::take_ended() {
  while (const auto ended = device_.completion()) {
    if (works_.empty()) continue;
    if (ended->status != NETFOLD_NIC_DONE) {
      return fail(Error{ErrorCode::kPeerFailed,
                        fmt::format("rank {}'s NIC ended a request with status {}: its neighbours in the ring sent "
                                    "something else, or nothing; all ranks must ask for the same all-reduces",
                                    options_.host.rank, ended->status),
                        kNoRank});
    }
    Work& work = works_.front();
    if (++work.ended == work.slices()) {
      finish(work);
      works_.pop_front();
    }
  }
}

void Group::finish(Work& work) {
  if (work.request.average) {
    numbers::kernels().divide_fp32(work.sums.data(), static_cast<float>(options_.host.world), work.sums.size(),
                                   work.sums.data());
  }
  if (!work.sums.empty()) std::memcpy(work.request.out, work.sums.data(), work.sums.size() * sizeof(float));
  {
    const std::lock_guard lock(mutex_);
    ++nic_requests_;
  }
  completions_.add({work.ticket}, std::nullopt);
}

// Whether numbers still flow, and the others are still there.
void Group::check() {
  if (const auto error = host_->error()) return fail(*error);
  if (device_.host_beats() != host_beats_) {
    host_beats_ = device_.host_beats();
    last_progress_ = now();
  } else if (!works_.empty() && now() - last_progress_ > from_seconds(options_.host.timeout_s)) {
    const int world = options_.host.world, left = (options_.host.rank + world - 1) % world;
    fail(Error{ErrorCode::kTimeout,
               fmt::format("rank {}: nothing came through the ring of NICs for {:g} s; rank {} sends to this one",
                           options_.host.rank, options_.host.timeout_s, left),
               left});
  }
}

void Group::fail(const Error& error) {
  std::vector<Ticket> tickets;
  for (const Work& work : works_) tickets.push_back(work.ticket);
  const bool had_work = !works_.empty();
  if (had_work) device_.reset();  // before the memory goes
  works_.clear();
  {
    const std::lock_guard lock(mutex_);
    for (const Work& work : submitted_) tickets.push_back(work.ticket);
    submitted_.clear();
    if (!failure_) failure_ = error;
  }
  completions_.add(tickets, error);
}

bool Group::link_is_idle() {
  return (device_.read(NETFOLD_NIC_STATUS) >> NETFOLD_NIC_STATUS_LINK_IDLE_SHIFT & 1) != 0;
}

// The clock stands still once nothing is asked for and the neighbours have been answered. While this rank waits for
// them it runs slowly.
void Group::rest() {
  const bool may_stop = works_.empty() && quiet_cycles_ > kSettleCycles && (!is_bfp_ || link_is_idle());
  if (!may_stop && quiet_cycles_ < kQuietCycles) return;
  std::array<pollfd, 2> descriptors{{{wakeup_.descriptor(), POLLIN, 0}, {link_->descriptor(), POLLIN, 0}}};
  engine::wait_for(descriptors, now() + (may_stop ? 100 * kMillisecond : kNap));
  wakeup_.clear();
}

}  // namespace netfold::rtl
