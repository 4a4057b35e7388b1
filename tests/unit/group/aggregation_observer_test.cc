// A job with a host over real sockets on loopback: workers fold, the host hears when.
#include "group/via_switch/aggregation_observer.h"

#include <gtest/gtest.h>

#include <future>

#include "counter.h"
#include "group/via_switch/switch_group.h"
#include "switch/switch_server.h"

namespace netfold::group {
using namespace switching;
using namespace control;
namespace {

using numbers::Format;

class JobHostTest : public ::testing::Test {
 protected:
  void start(SwitchServerOptions options = {}) {
    options.bind.ip = 0x7f000001;
    auto server = SwitchServer::start(std::move(options));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    options_.switch_address = link::to_string(server_->address());
    options_.job = "hosted";
    options_.world = 2;
  }

  // The host first, then the workers.
  void join() {
    auto host = std::async(std::launch::async, [this] { return AggregationObserver::join(options_); });
    while (server_->stats().jobs.empty()) {
      if (host.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready)
        FAIL() << host.get().error().message;
    }
    std::vector<std::future<Result<std::unique_ptr<SwitchGroup>>>> joining;
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      SwitchGroupOptions options;
      static_cast<JoinOptions&>(options) = options_;
      options.rank = rank;
      joining.push_back(std::async(std::launch::async, [options] { return SwitchGroup::join(options); }));
    }
    for (auto& each : joining) {
      auto client = each.get();
      ASSERT_TRUE(client) << client.error().message;
      workers_.push_back(std::move(*client));
    }
    auto joined = host.get();
    ASSERT_TRUE(joined) << joined.error().message;
    host_ = std::move(*joined);
  }

  void submit(std::uint16_t rank, std::vector<float>& tensor) {
    ASSERT_TRUE(workers_[rank]->submit(
        {tensor.data(), tensor.data(), tensor.size(), numbers::ElementType::kFp32, Format::kFp32, false}));
  }

  JoinOptions options_;
  std::unique_ptr<SwitchServer> server_;
  std::vector<std::unique_ptr<SwitchGroup>> workers_;
  std::unique_ptr<AggregationObserver> host_;
};

TEST_F(JobHostTest, HearsOfEachTensorOnceItIsFolded) {
  SwitchServerOptions options;
  options.data.shards = 2;
  options.secret = options_.secret = "sesame";
  options.require_auth = true;
  start(std::move(options));
  join();
  std::vector<float> small(100, 1), large(300'000, 2), small_too(100, 1), large_too(300'000, 2);
  const auto first = host_->expect(small.size(), Format::kFp32), second = host_->expect(large.size(), Format::kFp32);
  submit(0, small);
  submit(0, large);
  EXPECT_FALSE(host_->wait(first, 100 * kMillisecond)) << "rank 1 has sent nothing";
  submit(1, small_too);
  const auto heard = host_->wait(first, 20 * kSecond);
  ASSERT_TRUE(heard);
  EXPECT_FALSE(heard->error);
  EXPECT_FALSE(host_->wait(second, 50 * kMillisecond));
  submit(1, large_too);
  ASSERT_TRUE(host_->wait(second, 20 * kSecond));
  for (const auto& worker : workers_) {  // which may still be writing to the tensors
    for (int tensor = 0; tensor < 2; ++tensor) ASSERT_TRUE(worker->next_completion(20 * kSecond));
  }
  EXPECT_GE(counter(*host_, "signals"), 4) << "one a shard and tensor";
  EXPECT_EQ(server_->stats().jobs[0].counters.results_sent, 2 * server_->stats().jobs[0].counters.folded_chunks)
      << "the host is sent no result";
}

TEST_F(JobHostTest, WaitsNoLongerThanItsJobLives) {
  start();
  join();
  const auto ticket = host_->expect(1000, Format::kFp32);
  workers_.clear();
  const auto heard = host_->wait(ticket, 20 * kSecond);
  ASSERT_TRUE(heard && heard->error);
  EXPECT_EQ(heard->error->code, ErrorCode::kPeerFailed);
  const auto late = host_->wait(host_->expect(1, Format::kFp32), kSecond);
  ASSERT_TRUE(late && late->error);
}

TEST_F(JobHostTest, ThatLeavesLeavesItsJobAlone) {
  start();
  join();
  host_->close();
  std::vector<float> mine(5000, 1), yours(5000, 2);
  submit(0, mine);
  submit(1, yours);
  ASSERT_TRUE(workers_[0]->next_completion(20 * kSecond));
  ASSERT_TRUE(workers_[1]->next_completion(20 * kSecond));
  EXPECT_EQ(mine[4999], 3);
}

}  // namespace
}  // namespace netfold::group
