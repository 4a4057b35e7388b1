#include "engine/job_host.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/operation.h"
#include "engine/thread_setup.h"
#include "jobs/messages.h"
#include "link/udp.h"

namespace netfold::engine {
namespace {

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this host has left its job: join again", kNoRank};
}

}  // namespace

Result<std::unique_ptr<JobHost>> JobHost::join(JoinOptions options) {
  const auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  const auto route = route_to(*address);
  if (!route) return tl::unexpected(route.error());
  auto link = link::open_udp({});
  if (!link) return tl::unexpected(link.error());
  options.rank = jobs::kHostRank;
  options.udp_port = (*link)->local_address().port;
  options.mtu = route->mtu;
  auto control = ControlConnection::join(options);
  if (!control) return tl::unexpected(control.error());
  return std::unique_ptr<JobHost>(new JobHost(std::move(*link), std::move(*control)));
}

JobHost::JobHost(std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control)
    : link_(std::move(link)),
      control_(std::move(control)),
      lease_(control_->lease()),
      path_(lease_, *link_, control_->shard_addresses()) {
  thread_ = std::thread([this] { run(); });
}

JobHost::~JobHost() {
  close();
}

JobHost::Ticket JobHost::expect(std::size_t elements, numbers::Format format) {
  const std::uint64_t chunks = chunks_of(elements, lease_.wire_format(format), lease_).chunks;
  const std::lock_guard lock(mutex_);
  const Ticket ticket = completions_.issue();
  if (failure_ || is_closing_) {
    completions_.add({ticket}, failure_ ? *failure_ : closed_error());
    return ticket;
  }
  expected_.push_back({ticket, chunks});
  wakeup_.wake();
  return ticket;
}

void JobHost::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
}

HostStats JobHost::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void JobHost::run() {
  set_up_thread("nf-host", kAnyCore);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closing_) break;
    }
    if (!failure_) {
      take_expectations();
      path_.pump(now());
      publish();
      if (const auto alive = control_->pump(now()); !alive) fail(alive.error());
    }
    sleep();
  }
  control_->leave(std::nullopt);
  fail(closed_error());
  completions_.close();
}

void JobHost::take_expectations() {
  const std::lock_guard lock(mutex_);
  for (const Expectation& each : expected_) {
    path_.expect(each.ticket, each.chunks, now());
  }
  expected_.clear();
}

void JobHost::publish() {
  {
    const std::lock_guard lock(mutex_);
    stats_ = path_.stats();
  }
  completions_.add(path_.take_finished(), std::nullopt);
}

void JobHost::fail(const Error& error) {
  const std::deque<Ticket> unfinished = path_.abandon();
  std::vector<Ticket> tickets(unfinished.begin(), unfinished.end());
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const Expectation& each : expected_) tickets.push_back(each.ticket);
    expected_.clear();
  }
  completions_.add(tickets, error);
}

void JobHost::sleep() {
  std::array<pollfd, 3> descriptors{{{wakeup_.descriptor(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}}};
  Nanoseconds deadline = kNever;
  if (!failure_) {  // else only close() is still of interest
    descriptors[1].fd = link_->descriptor();
    descriptors[2] = {control_->descriptor(),
                      static_cast<short>(control_->wants_to_write() ? POLLIN | POLLOUT : POLLIN), 0};
    deadline = std::min(path_.deadline(), control_->deadline());
  }
  wait_for(descriptors, deadline);
  if (descriptors[0].revents != 0) wakeup_.clear();
}

}  // namespace netfold::engine
