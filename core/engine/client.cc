#include "engine/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "link/fault_injector.h"
#include "link/pcap_writer.h"
#include "link/udp.h"

namespace netfold::engine {
namespace {

Result<std::unique_ptr<link::Link>> open_link(const ClientOptions& options, std::uint32_t local_ip) {
  auto opened = link::open_udp({});
  if (!opened) return opened;
  auto link = std::move(*opened);
  if (!options.faults.empty()) {
    const auto faults = link::parse_faults(options.faults);
    if (!faults) return tl::unexpected(faults.error());
    link = link::inject_faults(std::move(link), *faults, &now);
  }
  if (options.pcap_path.empty()) return link;
  return link::capture(std::move(link), options.pcap_path, {local_ip, link->local_address().port});
}

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this client has left its job: join again", kNoRank};
}

}  // namespace

Result<std::unique_ptr<Client>> Client::join(ClientOptions options) {
  const auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  const auto route = route_to(*address);
  if (!route) return tl::unexpected(route.error());
  auto link = open_link(options, route->local_ip);
  if (!link) return tl::unexpected(link.error());
  options.udp_port = (*link)->local_address().port;
  options.mtu = route->mtu;
  auto control = ControlConnection::join(options);
  if (!control) return tl::unexpected(control.error());
  return std::unique_ptr<Client>(new Client(std::move(options), std::move(*link), std::move(*control)));
}

Client::Client(ClientOptions options, std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control)
    : options_(std::move(options)),
      link_(std::move(link)),
      control_(std::move(control)),
      lease_(control_->lease()),
      stream_(lease_, options_.rank, {.window_chunks = options_.window}, *link_, control_->shard_addresses()),
      completions_(options_.on_completion) {
  thread_ = std::thread([this] { run(); });
}

Client::~Client() {
  close();
}

Result<Client::Ticket> Client::hand_over(const AllReduce& request, const CollectiveOptions& how, bool is_awaited) {
  if (const auto valid = engine::check(request); !valid) return tl::unexpected(valid.error());
  if (how.collective != schedule::Collective::kAllReduce) {
    return netfold::fail(ErrorCode::kInvalidArgument, "a switch serves all-reduces alone");
  }
  const std::lock_guard lock(mutex_);
  const Ticket ticket = completions_.issue(is_awaited);
  if (failure_ || is_closing_) {
    completions_.add({ticket}, failure_ ? *failure_ : closed_error());
    return ticket;
  }
  submitted_.push_back(std::make_unique<Operation>(ticket, request, lease_));
  wakeup_.wake();
  return ticket;
}

void Client::close(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closing_) parting_error_ = std::move(error);
    is_closing_ = true;
  }
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
}

StreamStats Client::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

nlohmann::json Client::counters() const {
  const std::lock_guard lock(mutex_);
  return {{"sent_packets", stats_.link.sent_packets},
          {"sent_bytes", stats_.link.sent_bytes},
          {"received_packets", stats_.link.received_packets},
          {"received_bytes", stats_.link.received_bytes},
          {"send_errors", stats_.link.send_errors},
          {"system_calls", stats_.link.system_calls},
          {"sent_chunks", stats_.window.sent_chunks},
          {"resent_chunks", stats_.window.resent_chunks},
          {"probes", stats_.window.probes},
          {"duplicate_results", stats_.window.duplicate_results},
          {"window_shrinks", stats_.window.shrinks},
          {"round_trip_s", to_seconds(stats_.window.round_trip)},
          {"dropped_packets", stats_.dropped_packets},
          {"reduced_elements", stats_.reduced_elements},
          {"cpu_s", cpu_s_}};
}

nlohmann::json to_json(const wire::Lease& lease) {
  return {{"job", lease.job},
          {"epoch", lease.epoch},
          {"world", lease.world},
          {"slots", lease.slots},
          {"shards", lease.shards},
          {"payload_bytes", lease.payload_bytes},
          {"is_tagged", lease.key.has_value()}};
}

std::optional<Error> Client::error() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Client::run() {
  set_up_thread(fmt::format("nf-worker-{}", options_.rank), options_.core);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closing_) break;
    }
    const Nanoseconds time = now();
    take_submissions(time);
    bool link_is_full = false;
    if (!failure_) {
      link_is_full = stream_.pump(time);
      complete(stream_.take_finished(), std::nullopt);
      check(now());
    }
    sleep(link_is_full);
  }
  control_->leave(failure_ ? std::nullopt : parting_error_);
  fail(closed_error(), false);
  completions_.close();
}

void Client::sleep(bool link_is_full) {
  if (failure_) {  // only close() is still of interest
    std::array<pollfd, 1> descriptors{{{wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, kNever);
    wakeup_.clear();
  } else {
    const short link_events = link_is_full ? POLLIN | POLLOUT : POLLIN;
    const short control_events = control_->wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    std::array<pollfd, 3> descriptors{{{link_->descriptor(), link_events, 0},
                                       {wakeup_.descriptor(), POLLIN, 0},
                                       {control_->descriptor(), control_events, 0}}};
    Nanoseconds deadline = std::min(stream_.deadline(), control_->deadline());
    if (!stream_.is_idle()) deadline = std::min(deadline, stream_.last_progress() + from_seconds(options_.timeout_s));
    wait_for(descriptors, deadline);
    // A system call only where there is something: this runs for every few packets.
    if (descriptors[1].revents != 0) wakeup_.clear();
    control_is_ready_ = descriptors[2].revents != 0;
  }
}

void Client::take_submissions(Nanoseconds now) {
  std::deque<std::unique_ptr<Operation>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);  // nothing once the job has failed
  }
  for (auto& operation : taken) stream_.submit(std::move(operation), now);
}

void Client::check(Nanoseconds now) {
  if (control_is_ready_ || now >= control_->deadline()) {
    control_is_ready_ = false;
    if (const auto alive = control_->pump(now); !alive) return fail(alive.error(), false);
  }
  check_left_ranks();
  if (failure_) return;
  if (const auto error = stream_.overdue(now, from_seconds(options_.timeout_s), options_.switch_address)) {
    fail(*error, true);
  }
}

// A clean leave may overtake the last results on their way, so it alone fails nothing. Only when the switch says, after
// the leave was heard, that a rank that has left is missing, can the chunk never be folded.
void Client::check_left_ranks() {
  const auto& left = control_->left_ranks();
  if (left.size() != left_ranks_) {
    left_ranks_ = left.size();
    stream_.forget_missing_rank();
    return;
  }
  const auto missing = stream_.missing_rank();
  if (!missing || !left.contains(*missing)) return;
  fail({ErrorCode::kPeerFailed,
        fmt::format("rank {} has left the job while this rank ({}) still all-reduces: ranks must submit the same "
                    "all-reduces before they leave",
                    *missing, options_.rank),
        *missing},
       true);
}

void Client::fail(const Error& error, bool tell_others) {
  const std::vector<Ticket> tickets = stream_.abandon();
  if (tell_others) control_->leave(error);
  std::vector<Ticket> unsent;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const auto& operation : submitted_) unsent.push_back(operation->ticket());
    submitted_.clear();
  }
  complete(tickets, error);
  complete(unsent, error);
}

void Client::complete(const std::vector<Ticket>& tickets, const std::optional<Error>& error) {
  {
    const std::lock_guard lock(mutex_);
    stats_ = stream_.stats();
    if (!tickets.empty()) cpu_s_ = thread_cpu_s();
  }
  completions_.add(tickets, error);
}

}  // namespace netfold::engine
