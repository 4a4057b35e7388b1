// Errors of a worker's connection: no listener, another program at the port, late switches, interruptions.
#include "group/via_switch/joining.h"
#include "link/tcp/control_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/wakeup.h"
#include "switch/switch_server.h"

namespace netfold::group {
using namespace switching;
using namespace control;
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JoinOptions worker_for(link::Address address, double timeout_s) {
  JoinOptions options;
  options.switch_address = link::to_string(address);
  options.job = "a";
  options.udp_port = 6000;
  options.timeout_s = timeout_s;
  return options;
}

constexpr Nanoseconds kSoon = 20 * kSecond;  // on a busy machine, too

// A port without a listener, at an address of the loopback that no other process uses: the port stays free.
link::Address free_address() {
  const auto own = 0x7f000000u | (static_cast<std::uint32_t>(getpid()) & 0xffffffu);
  const int descriptor = link::listen_at({own, 0}).value();
  const link::Address address = link::local_address_of(descriptor);
  close(descriptor);
  return address;
}

SwitchServerOptions switch_at(link::Address address) {
  SwitchServerOptions options;
  options.bind = address;
  options.heartbeat_s = 0.25;
  return options;
}

// A listener that accepts connections and sends this text to each.
class OtherServer {
 public:
  explicit OtherServer(std::string says) : listener_(link::listen_at({0x7f000001, 0}).value()) {
    thread_ = std::thread([this, says] {
      std::vector<int> taken;
      while (!done_) {
        pollfd wanted{listener_, POLLIN, 0};
        wait_for({&wanted, 1}, now() + 20 * kMillisecond);
        const int descriptor = accept(listener_, nullptr, nullptr);
        if (descriptor < 0) continue;
        taken.push_back(descriptor);
        send(descriptor, says.data(), says.size(), MSG_NOSIGNAL);
      }
      for (const int descriptor : taken) close(descriptor);
    });
  }
  ~OtherServer() {
    done_ = true;
    thread_.join();
    close(listener_);
  }
  link::Address address() const { return link::local_address_of(listener_); }

 private:
  int listener_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST(ControlConnection, NobodyThereIsAnErrorWithinTheTimeout) {
  const Nanoseconds begin = now();
  const auto address = free_address();
  const auto joined = join_switch(worker_for(address, 0.5));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(joined.error().message,
              AllOf(HasSubstr(link::to_string(address)), HasSubstr("refused"), HasSubstr("netfold switch")));
  EXPECT_GE(to_seconds(now() - begin), 0.4);
  EXPECT_LT(now() - begin, kSoon);
}

TEST(ControlConnection, WorkersMayStartBeforeTheSwitch) {
  const auto address = free_address();
  auto joined = std::async(std::launch::async, [&] { return join_switch(worker_for(address, 10)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  auto server = SwitchServer::start(switch_at(address));
  ASSERT_TRUE(server) << server.error().message;
  auto connection = joined.get();
  EXPECT_TRUE(connection) << connection.error().message;
}

TEST(ControlConnection, AnotherServerIsNotTakenForASwitch) {
  OtherServer other("SSH-2.0-OpenSSH_9.2\r\n");
  const auto joined = join_switch(worker_for(other.address(), 20));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(joined.error().message, HasSubstr("not a Netfold switch"));
}

TEST(ControlConnection, AServerThatSaysNothingIsAnErrorInTime) {
  OtherServer silent("");
  const Nanoseconds begin = now();
  const auto joined = join_switch(worker_for(silent.address(), 0.3));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kSwitchFailed);
  EXPECT_LT(now() - begin, kSoon);
}

TEST(ControlConnection, MissingWorkersAreNamedInTime) {
  auto server = SwitchServer::start(switch_at({0x7f000001, 0}));
  ASSERT_TRUE(server);
  auto options = worker_for((*server)->address(), 0.5);
  options.world = 4;
  options.rank = 1;
  const Nanoseconds begin = now();
  const auto joined = join_switch(options);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(joined.error().rank, 0);
  EXPECT_THAT(joined.error().message, HasSubstr("ranks 0, 2, 3"));
  EXPECT_LT(now() - begin, kSoon);
}

TEST(ControlConnection, JoiningCanBeInterrupted) {
  auto server = SwitchServer::start(switch_at({0x7f000001, 0}));
  ASSERT_TRUE(server);
  for (const auto address : {(*server)->address(), free_address()}) {
    auto options = worker_for(address, 60);
    options.world = 2;
    const Nanoseconds begin = now();
    options.keep_going = [begin] { return now() < begin + 200 * kMillisecond; };
    const auto joined = join_switch(options);
    ASSERT_FALSE(joined);
    EXPECT_THAT(joined.error().message, HasSubstr("interrupted"));
    EXPECT_LT(now() - begin, kSoon);
  }
}

TEST(ControlConnection, WhatMakesNoSenseIsRefusedBeforeAnythingIsSent) {
  const auto message_of = [](void (*spoil)(JoinOptions&)) {
    JoinOptions options = worker_for({0x7f000001, 1}, 1);
    spoil(options);
    const auto joined = join_switch(options);
    EXPECT_FALSE(joined);
    EXPECT_EQ(joined.error().code, ErrorCode::kInvalidArgument);
    return joined.error().message;
  };
  EXPECT_THAT(message_of([](JoinOptions& o) { o.job = ""; }), HasSubstr("not a name"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.job = "two words"; }), HasSubstr("two words"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.rank = 1; }), HasSubstr("ranks are 0 to 0"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.world = 0; }), HasSubstr("0 workers"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.bfp.block = 7; }), HasSubstr("power of two"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.mtu = 100; }), HasSubstr("MTU"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.timeout_s = 0; }), HasSubstr("timeout"));
  EXPECT_THAT(message_of([](JoinOptions& o) { o.switch_address = "nowhere"; }), HasSubstr("host:port"));
}

// A rank that is taken by a dead worker is free again once the switch has noticed: joining waits for that.
TEST(ControlConnection, AJobStartedAgainGetsInAfterAnUnseenDeath) {
  auto server = SwitchServer::start(switch_at({0x7f000001, 0}));
  ASSERT_TRUE(server);
  auto dead = join_switch(worker_for((*server)->address(), 20));  // never pumped: no heartbeats
  ASSERT_TRUE(dead);
  const auto again = join_switch(worker_for((*server)->address(), 20));
  EXPECT_TRUE(again) << again.error().message;
}

TEST(ControlConnection, ASwitchThatDiesIsNamed) {
  const auto address = free_address();
  auto server = SwitchServer::start(switch_at(address));
  ASSERT_TRUE(server);
  auto connection = join_switch(worker_for(address, 20));
  ASSERT_TRUE(connection);
  auto stopping = std::async(std::launch::async, [&] { server->reset(); });
  const Nanoseconds until = now() + kSoon;
  Result<void> alive;
  while ((alive = (*connection)->pump(now())) && now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_FALSE(alive);
  EXPECT_EQ(alive.error().code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(alive.error().message, HasSubstr(link::to_string(address)));
  connection->reset();
  stopping.get();
  auto back = SwitchServer::start(switch_at(address));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(join_switch(worker_for(address, 20))) << "once it is back, the next job works";
}

TEST(Route, OfTheLoopback) {
  const auto route = link::route_to({0x7f000001, 7171});
  ASSERT_TRUE(route);
  EXPECT_EQ(route->local_ip, 0x7f000001u);
  EXPECT_GE(route->mtu, 1500u);
}

}  // namespace
}  // namespace netfold::group
