// Ranks that are connected to each other, over the simulated network. They stand for what group/via_peers/mesh.h makes.
#pragma once

#include <vector>

#include "group/via_peers/peer_session.h"
#include "testing/network.h"

namespace netfold::testing {

struct RankPlace {
  IpAddress ip;
  Network::OnNews on_news = [] {};
};

// By rank. Without `has_messages` there are no links for messages.
std::vector<group::PeerConnections> connect_ranks(Network& network, const std::vector<RankPlace>& places,
                                                  const StreamShape& shape, bool has_messages);

}  // namespace netfold::testing
