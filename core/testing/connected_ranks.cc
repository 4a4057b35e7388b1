#include "testing/connected_ranks.h"

#include <array>
#include <memory>
#include <utility>

#include "testing/all_of_them.h"

namespace netfold::testing {

std::vector<group::PeerConnections> connect_ranks(Network& network, const std::vector<RankPlace>& places,
                                                  const StreamShape& shape, bool has_messages) {
  const std::size_t world = places.size();
  std::vector<group::PeerConnections> all(world);
  std::vector<IpAddress> machines;
  for (const RankPlace& each : places) machines.push_back(each.ip);
  for (std::size_t rank = 0; rank < world; ++rank) {
    all[rank].data.resize(world);
    if (has_messages) all[rank].messages.resize(world);
    all[rank].bells.resize(world);
    all[rank].life_lines = std::make_unique<group::LifeLines>(static_cast<int>(rank), static_cast<int>(world),
                                                              std::make_unique<AllOfThem>());
    all[rank].life_lines->set_machines(machines);
  }
  for (std::size_t lower = 0; lower < world; ++lower) {
    for (std::size_t upper = lower + 1; upper < world; ++upper) {
      const std::array ranks{lower, upper};
      const RankPlace &one = places[lower], &two = places[upper];
      const auto streams = [&] { return network.connect_streams(one.ip, two.ip, shape, {one.on_news, two.on_news}); };
      auto lines = network.connect_lines(one.ip, two.ip);
      auto data = streams();
      std::array<std::unique_ptr<link::StreamLink>, 2> messages;
      if (has_messages) messages = streams();
      for (const std::size_t end : {0, 1}) {
        auto& own = all[ranks[end]];
        const std::size_t other = ranks[1 - end];
        on_news_of(*lines[end], places[ranks[end]].on_news);
        own.life_lines->add(static_cast<int>(other), std::move(lines[end]));
        own.data[other] = std::move(data[end]);
        if (has_messages) own.messages[other] = std::move(messages[end]);
      }
    }
  }
  return all;
}

}  // namespace netfold::testing
