// Groups of ranks as threads of one process, over loopback or shared memory.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "engine/host_group.h"

namespace netfold::engine {

using Groups = std::vector<std::unique_ptr<HostGroup>>;

inline Groups open_all(int world, HostGroupOptions options = {}) {
  Groups groups;
  std::vector<std::string> addresses;
  options.world = world;
  for (options.rank = 0; options.rank < world; ++options.rank) {
    auto group = HostGroup::open(options);
    EXPECT_TRUE(group) << group.error().message;
    addresses.push_back((*group)->address());
    groups.push_back(std::move(*group));
  }
  std::vector<std::future<Result<void>>> connecting;
  for (auto& group : groups) {
    connecting.push_back(std::async(std::launch::async, [&group, addresses] { return group->connect(addresses); }));
  }
  for (auto& each : connecting) {
    const auto connected = each.get();
    EXPECT_TRUE(connected) << connected.error().message;
  }
  return groups;
}

inline std::optional<Error> finish(HostGroup& group, HostGroup::Ticket ticket) {
  const auto completion = group.wait(ticket, 30 * kSecond);
  if (!completion) return Error{ErrorCode::kTimeout, "an all-reduce neither completed nor failed", kNoRank};
  return completion->error;
}

// Every rank all-reduces its tensor, in place; the errors by rank.
template <class T>
std::vector<std::optional<Error>> reduce_all(Groups& groups, std::vector<std::vector<T>>& tensors, AllReduce request,
                                             const CollectiveOptions& options) {
  std::vector<std::future<std::optional<Error>>> waiting;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    request.in = request.out = tensors[rank].data();
    request.count = tensors[rank].size();
    waiting.push_back(std::async(std::launch::async, [&group = *groups[rank], request, options] {
      const auto ticket = group.submit(request, options);
      return ticket ? finish(group, *ticket) : std::optional<Error>(ticket.error());
    }));
  }
  std::vector<std::optional<Error>> errors;
  for (auto& each : waiting) errors.push_back(each.get());
  return errors;
}

}  // namespace netfold::engine
