// Whole jobs over real sockets on loopback: a switch server, clients as threads of this process.
#include "group/via_switch/switch_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/prng.h"
#include "counter.h"
#include "numbers/codec.h"
#include "switch/switch_server.h"

namespace netfold::group {
using namespace switching;
using namespace control;
namespace {

using numbers::ElementType;
using numbers::Format;
using ::testing::HasSubstr;

constexpr std::uint32_t kLoopback = 0x7f000001;

std::unique_ptr<SwitchServer> start_switch(SwitchServerOptions options = {}) {
  options.bind.ip = kLoopback;
  auto server = SwitchServer::start(std::move(options));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

std::vector<std::unique_ptr<SwitchGroup>> join_all(const SwitchServer& server, std::uint16_t world,
                                                   SwitchGroupOptions options = {}) {
  options.switch_address = link::to_string(server.address());
  options.job = "test";
  options.world = world;
  std::vector<std::future<Result<std::unique_ptr<SwitchGroup>>>> joining;
  for (std::uint16_t rank = 0; rank < world; ++rank) {
    options.rank = rank;
    joining.push_back(std::async(std::launch::async, [options] { return SwitchGroup::join(options); }));
  }
  std::vector<std::unique_ptr<SwitchGroup>> clients;
  for (auto& joined : joining) {
    auto client = joined.get();
    EXPECT_TRUE(client) << client.error().message;
    clients.push_back(client ? std::move(*client) : nullptr);
  }
  return clients;
}

Completion wait(SwitchGroup& client, SwitchGroup::Ticket ticket) {
  const auto completion = client.wait(ticket, 20 * kSecond);
  EXPECT_TRUE(completion) << "an all-reduce neither completed nor failed";
  return completion.value_or(Completion{ticket, Error{ErrorCode::kTimeout, "never completed", kNoRank}});
}

SwitchGroup::Ticket reduce(SwitchGroup& client, std::vector<float>& tensor, Format format = Format::kFp32,
                           bool average = false) {
  const auto ticket = client.submit({tensor.data(), tensor.data(), tensor.size(), ElementType::kFp32, format, average});
  EXPECT_TRUE(ticket);
  return *ticket;
}

TEST(SwitchGroup, FoldsManyTensorsInFlight) {
  const auto server = start_switch();
  auto clients = join_all(*server, 4);
  constexpr std::size_t kTensors = 40;
  std::vector<std::vector<std::vector<float>>> tensors(4);
  std::vector<std::vector<SwitchGroup::Ticket>> tickets(4);
  Prng prng(1);
  for (std::size_t t = 0; t < kTensors; ++t) {
    const std::size_t count = prng.below(40'000);
    for (std::size_t rank = 0; rank < 4; ++rank) tensors[rank].emplace_back(count, static_cast<float>(rank + t));
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (auto& tensor : tensors[rank]) tickets[rank].push_back(reduce(*clients[rank], tensor));
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      ASSERT_FALSE(wait(*clients[rank], tickets[rank][t]).error);
      for (const float x : tensors[rank][t]) ASSERT_EQ(x, static_cast<float>(6 + 4 * t));
    }
  }
}

// A GPU has encoded them. The switch gets the same bytes as from a rank with fp32, and the sum comes back encoded.
TEST(SwitchGroup, SumsElementsThatADeviceHasEncodedToTheSameBits) {
  const auto server = start_switch();
  for (const numbers::BfpShape shape : {numbers::BfpShape{16, 7}, numbers::BfpShape{64, 3}}) {
    const numbers::WireFormat wire{Format::kBfp, shape};
    SwitchGroupOptions job;
    job.bfp = shape;
    auto clients = join_all(*server, 2, job);
    Prng prng(shape.block);
    for (const std::size_t count : {1UL, 1000UL, 65536UL, 100'003UL}) {
      std::vector<std::vector<float>> plain(2, std::vector<float>(count));
      for (auto& tensor : plain) {
        for (float& x : tensor) x = static_cast<float>(prng.below(1 << 20)) - (1 << 19);
      }
      std::vector<std::vector<std::byte>> encoded(2, std::vector<std::byte>(numbers::encoded_bytes(wire, count)));
      std::vector<SwitchGroup::Ticket> tickets;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        numbers::encode(wire, ElementType::kFp32, plain[rank].data(), count, encoded[rank].data());
        CollectiveRequest request{encoded[rank].data(), encoded[rank].data(), count, ElementType::kFp32, Format::kBfp};
        request.bfp = shape;
        request.is_encoded = true;
        tickets.push_back(*clients[rank]->submit(request));
      }
      for (std::size_t rank = 0; rank < 2; ++rank) ASSERT_FALSE(wait(*clients[rank], tickets[rank]).error);
      for (std::size_t rank = 0; rank < 2; ++rank) tickets[rank] = reduce(*clients[rank], plain[rank], Format::kBfp);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        ASSERT_FALSE(wait(*clients[rank], tickets[rank]).error);
        std::vector<float> decoded(count);
        numbers::decode(wire, ElementType::kFp32, encoded[rank].data(), count, decoded.data());
        EXPECT_EQ(decoded, plain[rank]) << count;
      }
    }
  }
}

TEST(SwitchGroup, FoldsWithFaultsTagsAndSeveralShards) {
  SwitchServerOptions options;
  options.secret = "a secret";
  options.require_auth = true;
  options.data.shards = 2;
  const auto server = start_switch(options);
  SwitchGroupOptions joining;
  joining.secret = "a secret";
  joining.require_auth = true;
  joining.faults = "loss=0.03,duplicate=0.03,reorder=0.1,seed=5";
  auto clients = join_all(*server, 3, joining);
  std::vector<std::vector<float>> tensors(3, std::vector<float>(300'000, 1.5f));
  std::vector<SwitchGroup::Ticket> tickets;
  for (std::size_t rank = 0; rank < 3; ++rank) tickets.push_back(reduce(*clients[rank], tensors[rank]));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_FALSE(wait(*clients[rank], tickets[rank]).error);
    EXPECT_THAT(tensors[rank], ::testing::Each(4.5f));
    EXPECT_TRUE(clients[rank]->lease().keys);
  }
  EXPECT_GT(counter(*clients[0], "resent_chunks") + counter(*clients[0], "probes"), 0);
}

TEST(SwitchGroup, AveragesEveryFormat) {
  const auto server = start_switch();
  auto clients = join_all(*server, 2);
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
    std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
    const auto ticket_a = reduce(*clients[0], a, format, true);
    const auto ticket_b = reduce(*clients[1], b, format, true);
    EXPECT_FALSE(wait(*clients[0], ticket_a).error);
    EXPECT_FALSE(wait(*clients[1], ticket_b).error);
    EXPECT_THAT(a, ::testing::Each(1.5f)) << numbers::name_of(format);
    EXPECT_EQ(a, b);
  }
  std::vector<std::int32_t> i(77, 3), j(77, 5), sum_i(77), sum_j(77);
  const auto ticket_i = clients[0]->submit({i.data(), sum_i.data(), 77, ElementType::kInt32, Format::kInt32, false});
  const auto ticket_j = clients[1]->submit({j.data(), sum_j.data(), 77, ElementType::kInt32, Format::kInt32, false});
  EXPECT_FALSE(wait(*clients[0], *ticket_i).error);
  EXPECT_FALSE(wait(*clients[1], *ticket_j).error);
  EXPECT_THAT(sum_i, ::testing::Each(8));
  EXPECT_THAT(i, ::testing::Each(3)) << "the input is only read";
}

TEST(SwitchGroup, RefusesWhatMakesNoSense) {
  const auto server = start_switch();
  auto clients = join_all(*server, 1);
  float x = 1;
  const auto as_int = clients[0]->submit({&x, &x, 1, ElementType::kFp32, Format::kInt32, false});
  ASSERT_FALSE(as_int);
  EXPECT_EQ(as_int.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(clients[0]->submit({nullptr, &x, 1, ElementType::kFp32, Format::kFp32, false}));
  const auto nothing = clients[0]->submit({nullptr, nullptr, 0, ElementType::kFp32, Format::kFp32, false});
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(wait(*clients[0], *nothing).error);
}

TEST(SwitchGroup, NamesTheRankThatDoesNotAnswer) {
  const auto server = start_switch();
  SwitchGroupOptions options;
  options.timeout_s = 0.7;
  auto clients = join_all(*server, 3, options);
  std::vector<float> a(200'000, 1.0f), b(200'000, 2.0f);
  const Nanoseconds start = now();
  const auto ticket_a = reduce(*clients[0], a), ticket_b = reduce(*clients[1], b);  // and none of rank 2
  const Completion of_a = wait(*clients[0], ticket_a), of_b = wait(*clients[1], ticket_b);
  EXPECT_LT(now() - start, 20 * kSecond);
  for (const auto& completion : {of_a, of_b}) {
    ASSERT_TRUE(completion.error);
    EXPECT_EQ(completion.error->rank, 2) << completion.error->message;
    EXPECT_THAT(completion.error->message, HasSubstr("rank 2"));
  }
  EXPECT_THAT(a, ::testing::Each(1.0f));
  EXPECT_THAT(b, ::testing::Each(2.0f));
  const auto later = reduce(*clients[0], a);
  EXPECT_TRUE(wait(*clients[0], later).error) << "the job is over";
}

TEST(SwitchGroup, NamesTheSwitchThatStopped) {
  auto server = start_switch();
  const std::string address = link::to_string(server->address());
  auto clients = join_all(*server, 2);
  std::vector<float> a(100'000, 1.0f);
  const auto ticket = reduce(*clients[0], a);  // rank 1 stays away
  server.reset();
  const Completion completion = wait(*clients[0], ticket);
  ASSERT_TRUE(completion.error);
  EXPECT_EQ(completion.error->code, ErrorCode::kSwitchFailed) << completion.error->message;
  EXPECT_THAT(completion.error->message, HasSubstr(address));
  EXPECT_THAT(a, ::testing::Each(1.0f));
}

// Rank 0's last result is held back while rank 1, which has its own, leaves: what can be folded is.
TEST(SwitchGroup, ACleanLeaveLosesNothing) {
  const auto server = start_switch();
  SwitchGroupOptions options;
  options.switch_address = link::to_string(server->address());
  options.job = "test";
  options.world = 2;
  options.faults = "reorder=0.99,hold_s=1.0,seed=3";
  auto joining = std::async(std::launch::async, [options] { return SwitchGroup::join(options); });
  SwitchGroupOptions prompt = options;
  prompt.rank = 1;
  prompt.faults = "";
  auto leaver = SwitchGroup::join(prompt);
  auto stayer = joining.get();
  ASSERT_TRUE(leaver && stayer);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> a(20, 1.0f), b(20, 2.0f);
    const auto ticket_a = reduce(**stayer, a), ticket_b = reduce(**leaver, b);
    EXPECT_FALSE(wait(**leaver, ticket_b).error);
    if (round == 2) (*leaver)->close();
    EXPECT_FALSE(wait(**stayer, ticket_a).error);
    EXPECT_THAT(a, ::testing::Each(3.0f));
  }
}

TEST(SwitchGroup, ClosingWakesWhoWaitsForCompletions) {
  const auto server = start_switch();
  auto clients = join_all(*server, 1);
  auto waiting = std::async(std::launch::async, [&] { return clients[0]->next_completion(60 * kSecond); });
  clients[0]->close();
  ASSERT_EQ(waiting.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_FALSE(waiting.get());
}

TEST(SwitchGroup, APeerThatLeavesOrFailsIsNamed) {
  const auto server = start_switch();
  for (const bool fails : {false, true}) {
    auto clients = join_all(*server, 2);
    std::vector<float> a(100'000, 1.0f);
    const auto ticket = reduce(*clients[0], a);
    clients[1]->close(fails ? std::optional(Error{ErrorCode::kSystem, "the GPU caught fire", 1}) : std::nullopt);
    const Completion completion = wait(*clients[0], ticket);
    ASSERT_TRUE(completion.error);
    EXPECT_EQ(completion.error->rank, 1) << completion.error->message;
    EXPECT_THAT(completion.error->message, HasSubstr(fails ? "the GPU caught fire" : "left the job"));
    EXPECT_THAT(a, ::testing::Each(1.0f));
  }
}

TEST(SwitchGroup, WorkersThatDisagreeAreTold) {
  const auto server = start_switch();
  auto clients = join_all(*server, 2);
  std::vector<float> a(100, 1.0f), b(200, 2.0f);
  const auto ticket_a = reduce(*clients[0], a), ticket_b = reduce(*clients[1], b);
  for (const auto& completion : {wait(*clients[0], ticket_a), wait(*clients[1], ticket_b)}) {
    ASSERT_TRUE(completion.error);
    EXPECT_EQ(completion.error->code, ErrorCode::kMismatch) << completion.error->message;
    EXPECT_THAT(completion.error->message, HasSubstr("rank 1"));
  }
}

TEST(SwitchGroup, ANewJobOfTheSameNameWorksAfterAFailure) {
  const auto server = start_switch();
  for (int life = 0; life < 3; ++life) {
    auto clients = join_all(*server, 2);
    std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
    const auto ticket_a = reduce(*clients[0], a), ticket_b = reduce(*clients[1], b);
    EXPECT_FALSE(wait(*clients[0], ticket_a).error);
    EXPECT_FALSE(wait(*clients[1], ticket_b).error);
    EXPECT_THAT(a, ::testing::Each(3.0f));
    clients[life % 2]->close(Error{ErrorCode::kSystem, "crash", life % 2});
  }
}

TEST(SwitchGroup, CompletionsComeToWhoeverAsks) {
  const auto server = start_switch();
  auto clients = join_all(*server, 1);
  std::vector<float> tensor(10, 1.0f);
  EXPECT_FALSE(clients[0]->next_completion(kMillisecond));
  const auto first = reduce(*clients[0], tensor);
  EXPECT_EQ(clients[0]->next_completion(kSecond)->ticket, first);
  const auto second = reduce(*clients[0], tensor);
  EXPECT_FALSE(wait(*clients[0], second).error);
  EXPECT_FALSE(clients[0]->next_completion(kMillisecond)) << "taken by wait";
}

}  // namespace
}  // namespace netfold::group
