// Ranks that reach each other by TCP, two of them through a proxy (proxy.h).
#pragma once

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "peer_groups.h"
#include "proxy.h"

namespace netfold::group {

// Rank `upper` reaches its neighbour `upper` - 1 through the proxy. No rank uses shared memory.
struct Proxied {
  Proxied(int world, int upper, PeerGroupOptions options, Fault fault) {
    options.world = world;
    options.shm = false;
    std::vector<std::string> addresses;
    for (options.rank = 0; options.rank < world; ++options.rank) {
      groups.push_back(std::move(*PeerGroup::open(options)));
      addresses.push_back(groups.back()->address());
    }
    const auto lower = static_cast<std::size_t>(upper - 1);
    proxy.emplace(addresses[lower], fault);
    std::vector<std::string> through_proxy = addresses;
    through_proxy[lower] = proxy->address();
    std::vector<std::future<Result<void>>> connecting;
    for (int rank = 0; rank < world; ++rank) {
      connecting.push_back(std::async(std::launch::async, [&, rank] {
        return groups[static_cast<std::size_t>(rank)]->connect(rank == upper ? through_proxy : addresses);
      }));
    }
    for (auto& each : connecting) EXPECT_TRUE(each.get());
  }

  std::optional<Proxy> proxy;
  Groups groups;
};

}  // namespace netfold::group
