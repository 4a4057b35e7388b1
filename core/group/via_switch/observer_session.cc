#include "group/via_switch/observer_session.h"

#include <nlohmann/json.hpp>

#include "group/via_switch/operation.h"

namespace netfold::group {

ObserverSession::ObserverSession(std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control)
    : link_(std::move(link)),
      control_(std::move(control)),
      lease_(control_->lease()),
      path_(lease_, *link_, control_->shard_addresses()) {}

void ObserverSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared>) {
  expected_.push_back({ticket, chunks_of(request.count, lease_.wire_format(request.format), lease_).chunks});
}

Result<bool> ObserverSession::pump(Nanoseconds now) {
  for (const auto& [ticket, chunks] : std::exchange(expected_, {})) path_.expect(ticket, chunks, now);
  path_.pump(now);
  if (const auto alive = control_->pump(now); !alive) return tl::unexpected(alive.error());
  return false;  // what comes next is seen by polling
}

std::vector<Ticket> ObserverSession::abort(const Error&, Nanoseconds) {
  const auto unfinished = path_.abandon();
  std::vector<Ticket> tickets(unfinished.begin(), unfinished.end());
  for (const auto& [ticket, chunks] : std::exchange(expected_, {})) tickets.push_back(ticket);
  return tickets;
}

void ObserverSession::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({link_->descriptor(), POLLIN, 0});
  polls.push_back(
      {control_->descriptor(), static_cast<short>(control_->wants_to_write() ? POLLIN | POLLOUT : POLLIN), 0});
}

nlohmann::json ObserverSession::counters() const {
  const ObserverStats& stats = path_.stats();
  return {{"questions", stats.questions}, {"signals", stats.signals}, {"dropped_packets", stats.dropped_packets}};
}

}  // namespace netfold::group
