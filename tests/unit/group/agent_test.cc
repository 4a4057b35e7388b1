// All-reduces by an agent: the bits of an engine in this process, tensors that stay whole, and ends of all kinds. Agent
// and workers are of one process here; tests/python/test_agent.py has them apart.
#include "group/via_agent/agent.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <future>
#include <thread>

#include "base/prng.h"
#include "counter.h"
#include "group/via_agent/agent_group.h"
#include "link/shm/local_socket.h"
#include "peer_groups.h"
#include "switch/switch_server.h"

namespace netfold::group {
using namespace switching;
using namespace control;
namespace {

using Clients = std::vector<std::unique_ptr<AgentGroup>>;

constexpr std::size_t kSeveralParts = 2 * kPartElements + 12'345;

std::unique_ptr<Agent> start_agent() {
  spdlog::default_logger();  // before there are threads: the thread sanitizer does not see inside libspdlog
  auto agent = Agent::start("@" + link::unique_name());
  EXPECT_TRUE(agent) << agent.error().message;
  return std::move(*agent);
}

Clients open_clients(const Agent& agent, int world, double timeout_s = 30, const std::vector<int>& order = {}) {
  Clients clients;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < world; ++rank) {
    auto client = AgentGroup::open(agent.address(), {.rank = rank, .world = world, .timeout_s = timeout_s});
    EXPECT_TRUE(client) << client.error().message;
    addresses.push_back((*client)->opened()["address"]);
    (*client)->set_physical_order(order);
    clients.push_back(std::move(*client));
  }
  connect_all(clients, addresses);
  return clients;
}

std::optional<Error> finish(Group& engine, Group::Ticket ticket) {
  const auto completion = engine.wait(ticket, 30 * kSecond);
  if (!completion) return Error{ErrorCode::kTimeout, "an all-reduce neither completed nor failed", kNoRank};
  return completion->error;
}

template <class Engines>
Tensors sums(Engines& engines, Tensors tensors, CollectiveRequest request) {
  std::vector<Group::Ticket> tickets;
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    request.in = request.out = tensors[rank].data();
    request.count = tensors[rank].size();
    const auto ticket = engines[rank]->submit(request);
    EXPECT_TRUE(ticket) << ticket.error().message;
    tickets.push_back(*ticket);
  }
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    const auto error = finish(*engines[rank], tickets[rank]);
    EXPECT_FALSE(error) << error->message;
  }
  return tensors;
}

TEST(Agent, GivesTheBitsOfAnEngineInThisProcess) {
  constexpr int kWorld = 3;
  const auto agent = start_agent();
  auto clients = open_clients(*agent, kWorld);
  auto groups = open_all(kWorld);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kSeveralParts}) {
    for (const auto format : {numbers::Format::kFp32, numbers::Format::kBfp}) {
      const auto tensors = gradients(kWorld, count);
      CollectiveRequest request;
      request.format = format;
      request.average = true;
      EXPECT_EQ(sums(clients, tensors, request), sums(groups, tensors, request)) << count;
    }
  }
  EXPECT_GT(counter(*clients[0], "cpu_s"), 0);
}

// Every rank's `in` is `read` numbers and its `out` `written`; returns the results of the ranks.
template <class Engines>
Tensors results(Engines& engines, std::size_t read, std::size_t written, CollectiveRequest request) {
  const int world = static_cast<int>(engines.size());
  const Tensors inputs = gradients(world, read);
  const bool is_in_place = request.collective == schedule::Collective::kBroadcast;
  Tensors outputs = is_in_place ? inputs : gradients(world, written);
  std::vector<Group::Ticket> tickets;
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    request.in = is_in_place ? outputs[rank].data() : inputs[rank].data();
    request.out = outputs[rank].data();
    const auto ticket = engines[rank]->submit(request);
    EXPECT_TRUE(ticket) << ticket.error().message;
    tickets.push_back(*ticket);
  }
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    const auto error = finish(*engines[rank], tickets[rank]);
    EXPECT_FALSE(error) << error->message;
  }
  EXPECT_EQ(inputs, gradients(world, read)) << "the input was written to";
  return outputs;
}

TEST(Agent, OtherCollectivesHaveTheSameBitsToo) {
  constexpr std::size_t kWorld = 3;
  const auto agent = start_agent();
  auto clients = open_clients(*agent, kWorld);
  auto groups = open_all(kWorld);
  for (const std::size_t part : {std::size_t{0}, std::size_t{1009}, kPartElements / 2 + 77}) {  // and several slots
    for (const auto format : {numbers::Format::kFp32, numbers::Format::kBfp}) {
      CollectiveRequest request;
      request.format = format;
      request.count = part;
      const auto expect_alike = [&](std::size_t read, std::size_t written) {
        const auto expected = results(groups, read, written, request);
        EXPECT_EQ(results(clients, read, written, request), expected) << schedule::name_of(request.collective) << part;
      };
      request.collective = schedule::Collective::kAllGather;
      expect_alike(part, kWorld * part);
      request.collective = schedule::Collective::kReduceScatter;
      request.average = true;
      expect_alike(kWorld * part, part);
      request.collective = schedule::Collective::kBroadcast;
      request.root = 1;
      request.average = false;
      request.count = kWorld * part;
      expect_alike(request.count, request.count);
    }
  }
  results(clients, 0, 0, {.collective = schedule::Collective::kBarrier, .algorithm = {.name = "dissemination"}});
}

TEST(Agent, IsToldWhereRanksSit) {
  const auto agent = start_agent();
  const std::vector<int> order{2, 0, 3, 1};
  auto clients = open_clients(*agent, 4, 30, order);
  CollectiveRequest request;
  request.algorithm = {.name = "hdrm", .sub_nodes = 2, .switches = 2};
  const auto tensors = gradients(4, 10'001);
  auto groups = open_all(4);  // in another order other sums are rounded
  const auto elsewhere = sums(groups, tensors, request);
  EXPECT_NE(sums(clients, tensors, request), elsewhere);
  auto strange = open_clients(*agent, 2, 30, {5, 5});
  std::vector<float> tensor(10, 1);
  request.in = request.out = tensor.data();
  request.count = tensor.size();
  request.algorithm.sub_nodes = 1;
  const auto error = finish(*strange[0], *strange[0]->submit(request));
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("'order'"), std::string::npos) << error->message;
}

TEST(Agent, ServesASwitchToo) {
  auto server = SwitchServer::start({});
  ASSERT_TRUE(server);
  const auto agent = start_agent();
  SwitchGroupOptions options;
  options.switch_address = fmt::format("127.0.0.1:{}", (*server)->address().port);
  options.job = "agent";
  options.world = 2;
  auto joining = std::async(std::launch::async, [&, other = options]() mutable {
    other.rank = 1;
    return AgentGroup::join(agent->address(), other);
  });
  auto first = AgentGroup::join(agent->address(), options), second = joining.get();
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*first)->opened()["world"], 2);
  Clients clients;
  clients.push_back(std::move(*first));
  clients.push_back(std::move(*second));
  const auto tensors = gradients(2, kPartElements + 77);
  const auto summed = sums(clients, tensors, {});
  for (std::size_t i = 0; i < tensors[0].size(); ++i) ASSERT_EQ(summed[1][i], tensors[0][i] + tensors[1][i]) << i;
  auto groups = open_all(2);
  CollectiveRequest request;
  request.count = kSeveralParts;
  request.collective = schedule::Collective::kReduceScatter;
  EXPECT_EQ(results(clients, 2 * kSeveralParts, kSeveralParts, request),
            results(groups, 2 * kSeveralParts, kSeveralParts, request));
  request.collective = schedule::Collective::kAllGather;
  EXPECT_EQ(results(clients, kSeveralParts, 2 * kSeveralParts, request),
            results(groups, kSeveralParts, 2 * kSeveralParts, request));
  results(clients, 0, 0, {.collective = schedule::Collective::kBarrier});
}

TEST(Agent, ReadsAndWritesWhereItIsTold) {
  const auto agent = start_agent();
  auto clients = open_clients(*agent, 2);
  std::vector<float> in(kSeveralParts, 3);
  Tensors out(2, std::vector<float>(kSeveralParts + 2, -1));
  std::vector<Group::Ticket> tickets;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    tickets.push_back(*clients[rank]->submit({in.data(), out[rank].data() + 1, kSeveralParts}));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(finish(*clients[rank], tickets[rank]));
    EXPECT_EQ(out[rank].front(), -1);
    EXPECT_EQ(out[rank].back(), -1);
    for (std::size_t i = 1; i <= kSeveralParts; ++i) ASSERT_EQ(out[rank][i], 6) << i;
  }
  EXPECT_EQ(in, std::vector<float>(kSeveralParts, 3));
}

// Rank 1 takes part in the first two of four parts, which are written to rank 0's memory, and then leaves.
TEST(Agent, AFailedTensorIsPutBack) {
  const auto agent = start_agent();
  auto client = AgentGroup::open(agent->address(), {.rank = 0, .world = 2});
  auto other = PeerGroup::open({.rank = 1, .world = 2});
  ASSERT_TRUE(client && other);
  const std::vector<std::string> addresses{(*client)->opened()["address"], (*other)->address()};
  auto connecting = std::async(std::launch::async, [&] { return (*other)->connect(addresses); });
  ASSERT_TRUE((*client)->connect(addresses));
  ASSERT_TRUE(connecting.get());

  const auto before = gradients(2, 4 * kPartElements);
  auto tensors = before;
  const auto ticket = (*client)->submit({tensors[0].data(), tensors[0].data(), 4 * kPartElements});
  for (std::size_t first = 0; first < 2 * kPartElements; first += kPartElements) {
    float* const part = tensors[1].data() + first;
    CollectiveRequest request{part, part, kPartElements};
    request.whole = 4 * kPartElements;
    request.part_at = first;
    EXPECT_FALSE(finish(**other, *(*other)->submit(request)));
  }
  const Nanoseconds deadline = now() + 20 * kSecond;
  const volatile float& last_written = tensors[0][2 * kPartElements - 1];
  while (last_written == before[0][2 * kPartElements - 1] && now() < deadline) std::this_thread::yield();
  EXPECT_NE(tensors[0], before[0]) << "nothing was written that could be put back";
  (*other)->close();
  const auto error = finish(**client, *ticket);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->rank, 1) << error->message;
  EXPECT_EQ(tensors[0], before[0]);
}

TEST(Agent, TensorsOfDifferentSizesAreNoticed) {
  const auto agent = start_agent();
  auto clients = open_clients(*agent, 2);
  auto tensors = gradients(2, 2 * kPartElements);
  const auto before = tensors;
  const auto longer = clients[0]->submit({tensors[0].data(), tensors[0].data(), 2 * kPartElements});
  const auto shorter = clients[1]->submit({tensors[1].data(), tensors[1].data(), kPartElements});
  for (const auto& error : {finish(*clients[0], *longer), finish(*clients[1], *shorter)}) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kMismatch) << error->message;
  }
  EXPECT_EQ(tensors, before);
}

TEST(Agent, StoppingItIsToldToAll) {
  auto agent = start_agent();
  auto clients = open_clients(*agent, 2);
  auto tensor = gradients(1, kSeveralParts)[0];
  const auto before = tensor;
  const auto ticket = clients[0]->submit({tensor.data(), tensor.data(), tensor.size()});
  agent->stop("was stopped by a test");
  for (const auto& error : {finish(*clients[0], *ticket), finish(*clients[1], *clients[1]->submit({}))}) {
    ASSERT_TRUE(error);
    EXPECT_NE(error->message.find("was stopped by a test"), std::string::npos) << error->message;
  }
  EXPECT_EQ(tensor, before);
}

TEST(Agent, AnAddressThatIsNoneFailsTheGroupAndNothingElse) {
  const auto agent = start_agent();
  auto clients = open_clients(*agent, 2);
  auto* const nowhere = reinterpret_cast<float*>(std::uintptr_t{4096});
  std::vector<float> tensor(10, 1);
  const auto wrong = clients[0]->submit({nowhere, nowhere, 10});
  const auto right = clients[1]->submit({tensor.data(), tensor.data(), 10});
  for (const auto& error : {finish(*clients[0], *wrong), finish(*clients[1], *right)}) {
    ASSERT_TRUE(error);
    EXPECT_NE(error->message.find("cannot read"), std::string::npos) << error->message;
  }
  EXPECT_EQ(tensor, std::vector<float>(10, 1));
  auto others = open_clients(*agent, 2);
  EXPECT_EQ(sums(others, {{1}, {2}}, {}), (Tensors{{3}, {3}}));
}

TEST(Agent, WhereThereIsNoneItSaysWhatToDo) {
  const auto client = AgentGroup::open("@netfold-absent", {});
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("netfold agent --socket @netfold-absent"), std::string::npos);
  EXPECT_FALSE(AgentGroup::open(std::string(200, 'x'), {}));
}

TEST(Agent, TwoCannotListenAtOneAddress) {
  const auto agent = start_agent();
  const auto second = Agent::start(agent->address());
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("another program"), std::string::npos) << second.error().message;
}

TEST(Agent, NoiseAtItsSocketIsTurnedAway) {
  const auto agent = start_agent();
  for (const nlohmann::json& noise :
       {nlohmann::json::object(), nlohmann::json{{"open", "host"}, {"version", kChannelVersion + 1}},
        nlohmann::json{{"open", "host"}, {"version", kChannelVersion}, {"probe", 4096}, {"token", 1}, {"options", 3}},
        nlohmann::json{{"open", 3}, {"options", nlohmann::json::object()}}}) {
    const auto socket = LocalSocket::connect(agent->address());
    ASSERT_TRUE(socket);
    ASSERT_TRUE(socket->send(noise));
    const auto answer = socket->await(now() + 10 * kSecond, {});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->body.contains("error"));
  }
  open_clients(*agent, 2);
}

}  // namespace
}  // namespace netfold::group
