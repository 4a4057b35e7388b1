// Ranks that sum both ways at once, over real sockets on loopback: a switch server, ranks as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "group/via_both/split_group.h"
#include "peer_groups.h"
#include "support/same_bits.h"
#include "switch/switch_server.h"

namespace netfold::group {

using tests::are_same_bits;

// At a free port, or where another one was before.
inline std::unique_ptr<switching::SwitchServer> start_switch(link::Address bind = {0x7f000001, 0}) {
  switching::SwitchServerOptions options;
  options.bind = bind;
  auto server = switching::SwitchServer::start(std::move(options));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

using SplitGroups = std::vector<std::unique_ptr<SplitGroup>>;

inline SplitGroups join_all(const std::vector<const switching::SwitchServer*>& servers, int world, bool shm = false,
                            double timeout_s = 20) {
  std::vector<SwitchGroupOptions> at_switches;
  for (const auto* const server : servers) {
    auto& at_switch = at_switches.emplace_back();
    at_switch.switch_address = link::to_string(server->address());
    at_switch.job = "test";
  }
  SplitGroups groups;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < world; ++rank) {
    auto group = SplitGroup::open({.rank = rank, .world = world, .timeout_s = timeout_s, .shm = shm}, at_switches);
    EXPECT_TRUE(group) << group.error().message;
    addresses.push_back((*group)->address());
    groups.push_back(std::move(*group));
  }
  connect_all(groups, addresses);
  return groups;
}

inline SplitGroups join_all(const switching::SwitchServer& server, int world, bool shm = false, double timeout_s = 20) {
  return join_all(std::vector{&server}, world, shm, timeout_s);
}

inline std::optional<Error> end_of(SplitGroup& group, Ticket ticket) {
  const auto completion = group.wait(ticket, 60 * kSecond);
  if (!completion) return Error{ErrorCode::kTimeout, "an all-reduce neither completed nor failed"};
  return completion->error;
}

inline CollectiveRequest request_for(const std::vector<float>& in, std::vector<float>& out,
                                     const schedule::Algorithm& algorithm,
                                     numbers::Format format = numbers::Format::kFp32, bool average = false) {
  return {.in = in.data(),
          .out = out.data(),
          .count = in.size(),
          .format = format,
          .average = average,
          .algorithm = algorithm};
}

// By rank: all-reduces of one tensor, by algorithm.
inline std::vector<std::vector<float>> reduce(SplitGroups& groups, const std::vector<std::vector<float>>& tensors,
                                              const schedule::Algorithm& algorithm, numbers::Format format,
                                              bool average, bool in_place) {
  std::vector<std::vector<float>> results = tensors;
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto& in = in_place ? results[rank] : tensors[rank];
    const auto ticket = groups[rank]->submit(request_for(in, results[rank], algorithm, format, average));
    EXPECT_TRUE(ticket) << ticket.error().message;
    tickets.push_back(*ticket);
  }
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto error = end_of(*groups[rank], tickets[rank]);
    EXPECT_FALSE(error) << error->message;
  }
  return results;
}

}  // namespace netfold::group
