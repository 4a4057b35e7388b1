#include "group/via_switch/aggregation_observer.h"

#include <utility>

#include "group/via_switch/observer_session.h"
#include "link/socket_address.h"
#include "link/udp.h"
#include "wire/control/messages.h"

namespace netfold::group {

Result<std::unique_ptr<AggregationObserver>> AggregationObserver::join(JoinOptions options) {
  const auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  auto link = link::open_udp({.bind = {link::any_like(address->ip), 0}, .road = options.road});
  if (!link) return tl::unexpected(link.error());
  options.rank = control::kHostRank;
  options.udp_port = (*link)->local_address().port;
  auto control = join_switch(options);
  if (!control) return tl::unexpected(control.error());
  std::unique_ptr<AggregationObserver> observer(new AggregationObserver((*control)->lease()));
  observer->start(std::make_unique<ObserverSession>(std::move(*link), std::move(*control)));
  return observer;
}

AggregationObserver::AggregationObserver(wire::Lease lease)
    : Driver({.thread_name = "nf-observer", .closed = "this observer has left its job: join again"}),
      lease_(std::move(lease)) {}

AggregationObserver::Ticket AggregationObserver::expect(std::size_t elements, numbers::Format format) {
  CollectiveRequest request;
  request.count = elements;
  request.format = format;
  return submit(request).value();  // an observer's session serves every request
}

}  // namespace netfold::group
