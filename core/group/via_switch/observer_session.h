// The session of a job's observer: it folds nothing, and asks the switch when its tensors are complete
// (observer_path.h). A submitted request says how many elements, of which format, the next tensor has; its memory is
// not touched.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "group/session.h"
#include "group/via_switch/observer_path.h"
#include "link/link.h"
#include "membership/control_connection.h"

namespace netfold::group {

using membership::ControlConnection;

class ObserverSession final : public Session {
 public:
  // `control` has joined the job as its observer.
  ObserverSession(std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control);

  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override { return path_.take_finished(); }
  bool is_idle() const override { return path_.is_idle() && expected_.empty(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest&) override { return nullptr; }
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override { return control_->leave(error, now); }
  Nanoseconds deadline() const override { return std::min(path_.deadline(), control_->deadline()); }
  void add_polls(std::vector<pollfd>& polls) const override;
  int life_line() const override { return control_->descriptor(); }
  nlohmann::json counters() const override;

 private:
  std::unique_ptr<link::Link> link_;
  std::unique_ptr<ControlConnection> control_;
  const wire::Lease lease_;
  ObserverPath path_;
  std::vector<std::pair<Ticket, std::uint64_t>> expected_;  // since the last pump: chunks of a ticket
};

}  // namespace netfold::group
