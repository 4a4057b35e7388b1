// Ranks and elements as they lie in memory: every operation, exchanges of parts of any size, and messages.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "peer_groups.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;
using numbers::Operation;
using schedule::Collective;
using Numbers = std::vector<std::int64_t>;

class AllTypesOver : public ::testing::TestWithParam<Links> {};

std::int64_t number(std::size_t rank, std::size_t i) {
  return static_cast<std::int64_t>((rank + 3) * 1'000'003 * (i + 1) % 2'001) - 1'000;
}

Numbers numbers_of(std::size_t rank, std::size_t count) {
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = number(rank, i);
  return numbers;
}

std::int64_t plain(Operation operation, std::size_t world, std::size_t i) {
  std::int64_t result = number(0, i);
  for (std::size_t rank = 1; rank < world; ++rank) {
    const std::int64_t other = number(rank, i);
    result = operation == Operation::kMax   ? std::max(result, other)
             : operation == Operation::kMin ? std::min(result, other)
             : operation == Operation::kXor ? (result ^ other)
                                            : result + other;
  }
  return result;
}

CollectiveRequest as_it_lies(Collective collective, const void* in, void* out, std::size_t count,
                             Operation operation = Operation::kSum, const char* algorithm = "direct") {
  CollectiveRequest request{in, out, count, ElementType::kInt64, Format::kNone, false, collective};
  request.operation = operation;
  request.algorithm.name = algorithm;
  return request;
}

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) ASSERT_FALSE(error) << error->message;
}

TEST_P(AllTypesOver, EveryReductionIsThePlainOne) {
  for (const std::size_t world : {1, 2, 3, 5}) {
    Groups groups = open_all(static_cast<int>(world), GetParam().options);
    for (const std::size_t part : {0, 1, 777, 20'011}) {
      const std::size_t count = world * part;
      for (const Operation operation : {Operation::kSum, Operation::kMax, Operation::kXor}) {
        std::vector<Numbers> inputs, sums(world, Numbers(part)), roots(world, Numbers(count, -7));
        for (std::size_t rank = 0; rank < world; ++rank) inputs.push_back(numbers_of(rank, count));
        std::vector<Numbers> in_place = inputs;
        for (const char* const algorithm : {"direct", "ring", "recursive-doubling"}) {
          in_place = inputs;
          expect_no_errors(run_all(groups, [&](std::size_t rank) {
            return as_it_lies(Collective::kAllReduce, in_place[rank].data(), in_place[rank].data(), count, operation,
                              algorithm);
          }));
          for (const Numbers& each : in_place) {
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(each[i], plain(operation, world, i)) << algorithm;
          }
        }
        expect_no_errors(run_all(groups, [&](std::size_t rank) {
          return as_it_lies(Collective::kReduceScatter, inputs[rank].data(), sums[rank].data(), part, operation);
        }));
        const std::size_t root = world / 2;
        expect_no_errors(run_all(groups, [&](std::size_t rank) {
          auto request = as_it_lies(Collective::kReduce, inputs[rank].data(), roots[rank].data(), count, operation);
          request.root = static_cast<int>(root);
          return request;
        }));
        for (std::size_t rank = 0; rank < world; ++rank) {
          for (std::size_t i = 0; i < part; ++i) ASSERT_EQ(sums[rank][i], plain(operation, world, rank * part + i));
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(roots[rank][i], rank == root ? plain(operation, world, i) : -7);
          }
          ASSERT_EQ(inputs[rank], numbers_of(rank, count)) << "the input was written to";
        }
      }
    }
  }
}

TEST_P(AllTypesOver, AnAverageIsDividedOnce) {
  Groups groups = open_all(3, GetParam().options);
  std::vector<Numbers> tensors(3, Numbers{7, -8, 100});
  expect_no_errors(run_all(groups, [&](std::size_t rank) {
    auto request = as_it_lies(Collective::kAllReduce, tensors[rank].data(), tensors[rank].data(), 3);
    request.average = true;
    return request;
  }));
  for (const Numbers& each : tensors) EXPECT_EQ(each, (Numbers{7, -8, 100}));
}

// `a op b` has other bits than `b op a` where a zero's sign decides, and where both are NaN.
TEST_P(AllTypesOver, AllRanksGetTheSameBitsOfZerosAndNans) {
  constexpr std::uint32_t kNan = 0x7fc00000, kOtherNan = 0xffc00001, kZero = 0, kMinusZero = 0x80000000;
  const std::vector<std::vector<std::uint32_t>> of_rank = {{kNan, kZero, kMinusZero, kOtherNan, kNan},
                                                           {kOtherNan, kMinusZero, kZero, kNan, kZero},
                                                           {kNan, kMinusZero, kMinusZero, kZero, kOtherNan}};
  for (const std::size_t world : {2, 3}) {
    Groups groups = open_all(static_cast<int>(world), GetParam().options);
    for (const auto& each : schedule::algorithms()) {
      for (const auto& [format, operation] : {std::pair{Format::kNone, Operation::kMax},
                                              {Format::kNone, Operation::kMin},
                                              {Format::kFp32, Operation::kSum}}) {
        std::vector<std::vector<std::uint32_t>> tensors;
        for (std::size_t rank = 0; rank < world; ++rank) {
          auto& tensor = tensors.emplace_back();
          for (int i = 0; i < 200; ++i) tensor.insert(tensor.end(), of_rank[rank].begin(), of_rank[rank].end());
        }
        const auto errors = run_all(groups, [&, format = format, operation = operation](std::size_t rank) {
          CollectiveRequest request{tensors[rank].data(), tensors[rank].data(), tensors[rank].size(),
                                    ElementType::kFp32, format};
          request.operation = operation;
          request.algorithm = {.name = each.name, .sub_nodes = 1, .switches = static_cast<int>(world), .group = 1};
          return request;
        });
        if (errors[0] && errors[0]->code == ErrorCode::kInvalidArgument) continue;  // not for this world
        expect_no_errors(errors);
        for (const auto& tensor : tensors) EXPECT_EQ(tensor, tensors[0]) << each.name << " " << name_of(operation);
      }
    }
  }
}

// Rank r sends rank s (r + 2 s) % 4 * unit elements.
std::size_t size_between(std::size_t from, std::size_t to, std::size_t unit) {
  return (from + 2 * to) % 4 * unit;
}

TEST_P(AllTypesOver, PartsOfAnySizeGoToTheirRanks) {
  for (const std::size_t world : {1, 2, 3, 5}) {
    Groups groups = open_all(static_cast<int>(world), GetParam().options);
    for (const std::size_t unit : {1, 333, 30'000}) {
      std::vector<Numbers> inputs(world), outputs(world);
      std::vector<std::shared_ptr<schedule::Parts>> parts(world);
      for (std::size_t rank = 0; rank < world; ++rank) {
        parts[rank] = std::make_shared<schedule::Parts>();
        for (std::size_t other = 0; other < world; ++other) {
          parts[rank]->sends.push_back(size_between(rank, other, unit));
          parts[rank]->receives.push_back(size_between(other, rank, unit));
          for (std::size_t i = 0; i < size_between(rank, other, unit); ++i) {
            inputs[rank].push_back(static_cast<std::int64_t>(rank * 100 + other) * 1'000'000 + static_cast<int>(i));
          }
        }
        outputs[rank].resize(parts[rank]->received());
      }
      expect_no_errors(run_all(groups, [&](std::size_t rank) {
        auto request = as_it_lies(Collective::kAllToAll, inputs[rank].data(), outputs[rank].data(), 0);
        request.parts = parts[rank];
        return request;
      }));
      for (std::size_t rank = 0; rank < world; ++rank) {
        std::size_t at = 0;
        for (std::size_t from = 0; from < world; ++from) {
          for (std::size_t i = 0; i < size_between(from, rank, unit); ++i) {
            ASSERT_EQ(outputs[rank][at++],
                      static_cast<std::int64_t>(from * 100 + rank) * 1'000'000 + static_cast<int>(i));
          }
        }
      }
    }
  }
}

TEST_P(AllTypesOver, TheRootGathersAndScatters) {
  constexpr std::size_t kWorld = 4, kPart = 1501, kRoot = 2;
  Groups groups = open_all(kWorld, GetParam().options);
  std::vector<Numbers> inputs, gathered(kWorld), scattered(kWorld, Numbers(kPart));
  for (std::size_t rank = 0; rank < kWorld; ++rank) inputs.push_back(numbers_of(rank, kPart));
  gathered[kRoot].resize(kWorld * kPart);
  const auto request_of = [&](Collective collective, std::size_t rank, const Numbers& in, Numbers& out) {
    auto request = as_it_lies(collective, in.data(), out.data(), 0);
    request.root = kRoot;
    request.parts = std::make_shared<schedule::Parts>(
        schedule::equal_parts(collective, kWorld, static_cast<int>(rank), kRoot, kPart));
    return request;
  };
  expect_no_errors(run_all(
      groups, [&](std::size_t rank) { return request_of(Collective::kGather, rank, inputs[rank], gathered[rank]); }));
  for (std::size_t i = 0; i < gathered[kRoot].size(); ++i) {
    ASSERT_EQ(gathered[kRoot][i], number(i / kPart, i % kPart));
  }
  expect_no_errors(run_all(groups, [&](std::size_t rank) {
    return request_of(Collective::kScatter, rank, rank == kRoot ? gathered[kRoot] : gathered[0], scattered[rank]);
  }));
  EXPECT_EQ(scattered, inputs);
}

TEST_P(AllTypesOver, SizesThatDifferAreAnErrorThatNamesARank) {
  for (const std::size_t wrong : {0, 6}) {
    Groups groups = open_all(2, GetParam().options);
    Numbers from(20), to(20);
    const auto errors = run_all(groups, [&](std::size_t rank) {
      auto request = as_it_lies(Collective::kAllToAll, from.data(), to.data() + 10 * rank, 0);
      request.parts = std::make_shared<schedule::Parts>(rank == 0 ? schedule::Parts{{0, 5}, {0, 5}}
                                                                  : schedule::Parts{{5, 0}, {wrong, 0}});
      return request;
    });
    ASSERT_TRUE(errors[1]);
    EXPECT_NE(errors[1]->message.find("both ranks must give the same sizes"), std::string::npos) << errors[1]->message;
    EXPECT_EQ(errors[1]->rank, 0);
    // Rank 0 may have ended already: it got what it expects.
  }
}

TEST_P(AllTypesOver, RanksThatDisagreeAboutTheOperationAreTold) {
  Groups groups = open_all(2, GetParam().options);
  std::vector<Numbers> tensors(2, Numbers(100));
  const auto errors = run_all(groups, [&](std::size_t rank) {
    return as_it_lies(Collective::kAllReduce, tensors[rank].data(), tensors[rank].data(), 100,
                      rank == 0 ? Operation::kMax : Operation::kMin);
  });
  const auto& told = errors[0]->code == ErrorCode::kMismatch ? errors[0] : errors[1];
  EXPECT_NE(told->message.find("for their max"), std::string::npos) << told->message;
  EXPECT_NE(told->message.find("for their min"), std::string::npos) << told->message;
}

CollectiveRequest message(Collective collective, void* memory, std::size_t bytes, int peer, std::uint64_t tag = 0) {
  CollectiveRequest request{memory, memory, bytes, ElementType::kUint8, Format::kNone, false, collective};
  request.peer = peer;
  request.tag = tag;
  return request;
}

TEST_P(AllTypesOver, AReceiveThatWaitsHoldsNoCollectiveUp) {
  Groups groups = open_all(2, GetParam().options);
  std::vector<std::byte> received(200'000), sent(200'000, std::byte{5});
  const auto receive = groups[0]->submit(message(Collective::kReceive, received.data(), received.size(), 1));
  ASSERT_TRUE(receive);
  auto tensors = gradients(2, 5000);
  for (int i = 0; i < 5; ++i) expect_no_errors(reduce_all(groups, tensors));
  const auto send = groups[1]->submit(message(Collective::kSend, sent.data(), sent.size(), 0));
  ASSERT_TRUE(send);
  EXPECT_FALSE(finish(*groups[0], *receive));
  EXPECT_FALSE(finish(*groups[1], *send));
  EXPECT_EQ(received, sent);
}

TEST_P(AllTypesOver, ThreadsSendAndReceiveBesideCollectives) {
  Groups groups = open_all(2, GetParam().options);
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (std::uint64_t tag = 0; tag < 3; ++tag) {
      threads.emplace_back([&, rank, tag] {
        for (std::size_t i = 0; i < 20; ++i) {
          std::vector<std::byte> mine(1 + i * 2500, static_cast<std::byte>(tag)), its(mine.size());
          auto& group = *groups[static_cast<std::size_t>(rank)];
          const auto send = group.submit(message(Collective::kSend, mine.data(), mine.size(), 1 - rank, tag));
          const auto receive = group.submit(message(Collective::kReceive, its.data(), its.size(), 1 - rank, tag));
          if (!send || !receive || finish(group, *receive) || finish(group, *send) || its != mine) ++failures;
        }
      });
    }
  }
  auto tensors = gradients(2, 3000);
  for (int i = 0; i < 20; ++i) expect_no_errors(reduce_all(groups, tensors));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST_P(AllTypesOver, ARankThatLeavesIsNamedToWhoReceivesFromIt) {
  Groups groups = open_all(3, GetParam().options);
  std::vector<std::byte> received(10);
  const auto receive = groups[0]->submit(message(Collective::kReceive, received.data(), received.size(), 2));
  ASSERT_TRUE(receive);
  std::thread leaving([&] { groups[2]->close(); });
  const auto error = finish(*groups[0], *receive);
  leaving.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->rank, 2);
  EXPECT_NE(error->message.find("rank 2"), std::string::npos) << error->message;
}

TEST_P(AllTypesOver, AMessageThatNeverComesIsATimeoutThatNamesItsSender) {
  PeerGroupOptions options = GetParam().options;
  options.timeout_s = 0.5;
  Groups groups = open_all(2, options);
  std::vector<std::byte> received(10);
  const auto receive = groups[0]->submit(message(Collective::kReceive, received.data(), received.size(), 1));
  ASSERT_TRUE(receive);
  const auto error = finish(*groups[0], *receive);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kTimeout);
  EXPECT_EQ(error->rank, 1);
}

TEST_P(AllTypesOver, ALeaveWithAReceiveForWhichNothingCameHarmsNobody) {
  Groups groups = open_all(3, GetParam().options);
  std::vector<std::byte> received(10);
  ASSERT_TRUE(groups[2]->submit(message(Collective::kReceive, received.data(), received.size(), 1)));
  std::thread leaving([&] { groups[2]->close(); });
  std::vector<std::byte> sent(10, std::byte{1});
  const auto receive = groups[0]->submit(message(Collective::kReceive, received.data(), received.size(), 1));
  const auto send = groups[1]->submit(message(Collective::kSend, sent.data(), sent.size(), 0));
  EXPECT_FALSE(finish(*groups[0], *receive));
  EXPECT_FALSE(finish(*groups[1], *send));
  leaving.join();
}

TEST_P(AllTypesOver, NonsenseIsRefused) {
  Groups groups = open_all(2, GetParam().options);
  PeerGroup& group = *groups[0];
  Numbers tensor(4);
  const auto refused = [&](const CollectiveRequest& request) {
    const auto ticket = group.submit(request);
    return ticket ? std::string("accepted") : ticket.error().message;
  };
  EXPECT_NE(refused(message(Collective::kSend, tensor.data(), 4, 0)).find("cannot send to rank 0"), std::string::npos);
  EXPECT_NE(refused(message(Collective::kSend, tensor.data(), 4, 7)).find("ranks 0 to 1"), std::string::npos);
  EXPECT_NE(
      refused(message(Collective::kSend, tensor.data(), 4, 1, std::uint64_t{1} << 63)).find("9223372036854775807"),
      std::string::npos);
  auto request = as_it_lies(Collective::kAllReduce, tensor.data(), tensor.data(), 4, Operation::kXor);
  request.type = ElementType::kFp64;
  EXPECT_NE(refused(request).find("bxor is not defined on fp64"), std::string::npos);
  request = as_it_lies(Collective::kAllToAll, tensor.data(), tensor.data(), 4);
  EXPECT_NE(refused(request).find("for each of the 2 ranks"), std::string::npos);
  request.parts = std::make_shared<schedule::Parts>(schedule::Parts{{1, 1}, {2, 1}});
  EXPECT_NE(refused(request).find("sends itself"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Links, AllTypesOver,
                         ::testing::Values(Links{"SharedMemory", {}}, Links{"Tcp", {.shm = false}}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace netfold::group
