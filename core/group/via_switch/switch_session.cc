#include "group/via_switch/switch_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace netfold::group {

SwitchSession::SwitchSession(SwitchSessionOptions options, std::unique_ptr<link::Link> link,
                             std::unique_ptr<ControlConnection> control)
    : options_(std::move(options)),
      link_(std::move(link)),
      control_(std::move(control)),
      lease_(control_->lease()),
      data_(lease_, options_.rank, {.window_chunks = options_.window}, *link_, control_->shard_addresses()) {
  if (const auto path = control_->path_address(); path.port != 0) {
    data_.watch_path(path, control_->side().hello().nonce);
  }
}

Result<std::unique_ptr<Prepared>> SwitchSession::prepare(const CollectiveRequest& request) {
  if (const auto valid = check_in_network(request, lease_.world); !valid) return tl::unexpected(valid.error());
  if (request.is_encoded && request.bfp != lease_.wire_format(request.format).bfp) {
    return fail(ErrorCode::kInvalidArgument, "the elements are encoded as bfp of another shape than the job has");
  }
  return nullptr;
}

void SwitchSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared>) {
  submitted_.push_back(std::make_unique<Operation>(ticket, request, lease_, options_.rank));
}

Result<bool> SwitchSession::pump(Nanoseconds now) {
  while (!submitted_.empty()) {  // one by one: if memory is refused in between, abort() knows the rest
    auto operation = std::move(submitted_.front());
    submitted_.pop_front();
    data_.submit(std::move(operation), now);
  }
  link_is_full_ = data_.pump(now);
  if (control_is_ready_ || now >= control_->deadline()) {
    control_is_ready_ = false;
    if (const auto alive = control_->pump(now); !alive) {
      is_over_ = true;
      return tl::unexpected(alive.error());
    }
    if (const auto share = control_->take_link_share()) data_.on_share(*share, now);
    if (control_->take_is_late()) data_.catch_up();
  }
  if (const auto error = check_left_ranks()) return tl::unexpected(*error);
  if (const auto error = data_.overdue(now, options_.timeout, options_.switch_name, control_->side().above())) {
    return tl::unexpected(*error);
  }
  if (const auto error = data_.shrunk(options_.switch_name)) return tl::unexpected(*error);
  if (const auto error = data_.silent(now, options_.silence_max, options_.switch_name)) return tl::unexpected(*error);
  return false;  // what comes next is seen by polling
}

// A clean leave may overtake the last results on their way, so it does not fail the job by itself. Only when the switch
// says, after the leave was heard, that a rank that has left is missing, can the chunk never be folded.
std::optional<Error> SwitchSession::check_left_ranks() {
  const auto& left = control_->left_ranks();
  if (left.size() != left_ranks_) {
    left_ranks_ = left.size();
    data_.forget_missing_rank();
    return std::nullopt;
  }
  const auto missing = data_.missing_rank();
  if (!missing || !left.contains(*missing)) return std::nullopt;
  return Error{ErrorCode::kPeerFailed,
               fmt::format("rank {} has left the job while this rank ({}) still waits: ranks must submit the "
                           "same collectives before they leave",
                           *missing, options_.rank),
               *missing};
}

std::optional<int> SwitchSession::missing_rank() const {
  const auto missing = data_.missing_rank();
  if (!missing || *missing == wire::kSwitchWorker || data_.is_idle()) return std::nullopt;
  return *missing;
}

std::vector<Ticket> SwitchSession::abort(const Error& error, Nanoseconds now) {
  std::vector<Ticket> tickets = data_.abandon();
  for (const auto& operation : submitted_) tickets.push_back(operation->ticket());
  submitted_.clear();
  if (!is_over_) leave(error, now);
  return tickets;
}

bool SwitchSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  is_over_ = true;
  return control_->leave(error, now);
}

Nanoseconds SwitchSession::deadline() const {
  Nanoseconds deadline = control_->deadline();
  if (is_over_) return deadline;
  deadline = std::min(deadline, data_.deadline());
  return data_.is_idle() ? deadline : std::min(deadline, data_.last_progress() + options_.timeout);
}

void SwitchSession::add_polls(std::vector<pollfd>& polls) const {
  const auto events = [](bool writes) { return static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN); };
  polls.push_back({control_->descriptor(), events(control_->wants_to_write()), 0});
  if (!is_over_) polls.push_back({link_->descriptor(), events(link_is_full_), 0});
}

void SwitchSession::on_wake(std::span<const pollfd> polls) {
  const auto control = std::ranges::find(polls, control_->descriptor(), &pollfd::fd);
  control_is_ready_ = control_is_ready_ || (control != polls.end() && control->revents != 0);
}

nlohmann::json SwitchSession::counters() const {
  const DataPathStats stats = data_.stats();
  return {{"sent_packets", stats.link.sent_packets},
          {"sent_bytes", stats.link.sent_bytes},
          {"received_packets", stats.link.received_packets},
          {"received_bytes", stats.link.received_bytes},
          {"send_errors", stats.link.send_errors},
          {"system_calls", stats.link.system_calls},
          {"sent_chunks", stats.window.sent_chunks},
          {"resent_chunks", stats.window.resent_chunks},
          {"probes", stats.window.probes},
          {"duplicate_results", stats.window.duplicate_results},
          {"echoes", stats.window.echoes},
          {"window_chunks", stats.window.window_chunks},
          {"window_shrinks", stats.window.shrinks},
          {"round_trip_s", to_seconds(stats.window.round_trip)},
          {"dropped_packets", stats.dropped_packets},
          {"reduced_elements", stats.reduced_elements}};
}

}  // namespace netfold::group
