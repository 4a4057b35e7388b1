// Bytes thrown at the control conversation, at both of its ends: random ones, and real messages with bytes changed,
// cut, swapped for others' values or nested. Nothing may crash or leak (the sanitizers watch); a message that is read
// must be written back with the same bytes; and a job that runs meanwhile must not be disturbed.
//
// NETFOLD_FUZZ_LINES sets how many (default 100,000), NETFOLD_SEED which.
#include <gtest/gtest.h>

#include "base/line_buffer.h"
#include "support/random_seed.h"
#include "unit/switch/conversation.h"

namespace netfold::tests {
using namespace control;
using namespace switching;
using namespace membership;
namespace {

class LineMaker {
 public:
  explicit LineMaker(std::uint64_t seed) : prng_(seed) {
    Proof proof;
    proof.fill(std::byte{0x5a});
    for (const Message& message : std::vector<Message>{
             Hello{kControlVersion, {}, true, true, 1},
             Join{kControlVersion, "a", 4, 1, 6000, 1500, {}, 0, 30, {}, proof, proof},
             Join{kControlVersion, "b", 2, 1, 6000, 1500, {}, 64, 30, {}, {}, {}}, Waiting{{0, 1, 2}},
             Admitted{1, 2, 512, 1440, {5000, 5001}, true, {}, proof}, Refused{"no", ErrorCode::kAuth, 1, 4},
             Heartbeat{}, Heartbeat{.link_share = LinkShare{.of_fair = 2}},
             Heartbeat{.link_share = LinkShare{.grant_bytes_s = 1e6}}, Heartbeat{.is_late = true}, Left{1},
             Failed{"it broke", ErrorCode::kPeerFailed, 1}, Leave{}, Leave{true, "it broke", ErrorCode::kTimeout, 2},
             Join{.job = "a", .world = 4, .udp_port = 7000, .below = Below{{7000, 7001}, 7171, {}}},
             Join{.job = "b", .world = 3, .rank = 1, .udp_port = 7000, .below = Below{{7000}, 7171, {std::byte{1}}}},
             Ranks{{0, 2}, 0, 512, 1440, {{std::byte{1}}}}, Ranks{{1, 2}, 64, 256, 1400, {}},
             Admitted{.udp_ports = {5000}, .in_tree = true, .above = "10.0.0.1:7171"}}) {
      std::string line = emit(message);
      line.pop_back();
      seeds_.push_back(std::move(line));
    }
  }

  std::string make() {
    if (prng_.chance(0.1)) return random_bytes(prng_.below(300));
    std::string line = seeds_[prng_.below(seeds_.size())];
    for (std::uint64_t changes = prng_.below(4); changes > 0; --changes) change(line);
    return line;
  }

  Prng& prng() { return prng_; }

 private:
  void change(std::string& line) {
    static const std::vector<std::string> values = {"-1",
                                                    "0",
                                                    "65536",
                                                    "4294967296",
                                                    "18446744073709551616",
                                                    "1e999",
                                                    "-0.0",
                                                    "null",
                                                    "true",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "[[[[[[",
                                                    "\"\\ud800\"",
                                                    "\"\xff\xfe\"",
                                                    "\"\\u0000\"",
                                                    "9223372036854775808",
                                                    "1.5",
                                                    "\"train\""};
    const std::size_t at = prng_.below(line.size() + 1);
    switch (prng_.below(6)) {
      case 0:
        if (!line.empty()) line[at % line.size()] = static_cast<char>(prng_.next());
        break;
      case 1: line.resize(at); break;
      case 2: line.insert(at, random_bytes(prng_.below(20))); break;
      case 3: line.erase(at, prng_.below(10)); break;
      case 4: {  // a value for another one
        const std::size_t colon = line.find(':', at);
        if (colon == std::string::npos) break;
        const std::size_t end = std::min(line.find_first_of(",}", colon), line.size());
        line.replace(colon + 1, end - colon - 1, values[prng_.below(values.size())]);
        break;
      }
      default: line.insert(at, std::string(prng_.below(2000), prng_.chance(0.5) ? '[' : '{'));
    }
  }

  std::string random_bytes(std::uint64_t count) {
    std::string bytes;
    while (count-- > 0) bytes += static_cast<char>(prng_.next());
    return bytes;
  }

  Prng prng_;
  std::vector<std::string> seeds_;
};

struct JobsFuzz : ::testing::Test {
  std::uint64_t seed = random_seed();
  std::uint64_t lines = from_environment("NETFOLD_FUZZ_LINES", 100000);
  LineMaker maker{seed};
  ::testing::ScopedTrace trace{__FILE__, __LINE__, ::testing::Message() << "NETFOLD_SEED=" << seed};
};

TEST_F(JobsFuzz, WhatIsReadIsWrittenBackTheSame) {
  std::uint64_t read = 0;
  for (std::uint64_t i = 0; i < lines; ++i) {
    const auto message = parse(maker.make());
    if (!message) continue;
    ++read;
    std::string line = emit(*message);
    ASSERT_LE(line.size(), kLineBytesMax);
    line.pop_back();
    const auto back = parse(line);
    // A message of another version is read no further than its version, so it cannot be written back whole.
    const bool foreign = line.find("\"version\":1,") == std::string::npos && line.find("\"version\"") < line.size();
    ASSERT_TRUE(back || foreign) << line;
    if (back && !foreign) {
      ASSERT_EQ(*back, *message) << line;
    }
  }
  EXPECT_GT(read, lines / 10) << "the maker makes too little sense to test anything";
}

TEST_F(JobsFuzz, StrangersDoNotDisturbARunningJob) {
  SwitchRules rules = Conversation::plain_rules();
  rules.secret = Secret::from("sesame");
  rules.tagged = true;
  Conversation c(rules);
  std::vector<ConnectionId> workers;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    auto request = Conversation::worker("a", 3, rank);
    request.secret = Secret::from("sesame");
    workers.push_back(c.join(request));
  }
  for (std::uint64_t i = 0; i < lines / 4; ++i) {
    const ConnectionId stranger = c.open();
    for (int say = 0; say < 3 && c.is_open(stranger); ++say) c.say(stranger, maker.make());
    if (c.is_open(stranger)) c.cut(stranger);
    if (i % 64 == 0) c.pass(kSecond / 10);
    ASSERT_FALSE(HasFatalFailure());
  }
  for (const ConnectionId worker : workers) EXPECT_TRUE(c.admitted(worker));
  EXPECT_EQ(c.table().jobs().size(), 1u);
}

TEST_F(JobsFuzz, AnOpenSwitchKeepsItsPromises) {
  Conversation c;
  std::vector<ConnectionId> strangers;
  for (std::uint64_t i = 0; i < lines / 4; ++i) {
    std::erase_if(strangers, [&](ConnectionId id) { return !c.is_open(id); });
    if (strangers.size() < 8) strangers.push_back(c.open());
    c.say(strangers[maker.prng().below(strangers.size())], maker.make());
    if (i % 16 == 0) c.pass(static_cast<Nanoseconds>(maker.prng().below(kSecond)));
    ASSERT_FALSE(HasFatalFailure());
  }
  for (const ConnectionId id : strangers) {
    if (c.is_open(id)) c.cut(id);
  }
  EXPECT_TRUE(c.running().empty());
  EXPECT_EQ(c.table().memory_bytes(), 0u);
}

TEST_F(JobsFuzz, AWorkerSurvivesAnySwitch) {
  for (std::uint64_t i = 0; i < lines / 4; ++i) {
    auto request = Conversation::worker("a", 3, 1);
    if (maker.prng().chance(0.5)) request.secret = Secret::from("sesame");
    WorkerSide worker(request, 0);
    if (maker.prng().chance(0.8)) {
      const bool auth = request.secret && maker.prng().chance(0.5);
      worker.on_line(emit(Hello{kControlVersion, {}, auth, auth, 1}), 0);
    }
    for (int line = 0; line < 8; ++line) worker.on_line(maker.make(), line);
    worker.on_time(kSecond);
    worker.leave({});
    const std::string output = worker.take_output();
    EXPECT_TRUE(output.empty() || output.ends_with('\n'));
    // A sender without the secret cannot pass as the switch with any message.
    if (worker.lease().keys) ADD_FAILURE() << "admitted by a stranger";
  }
}

TEST_F(JobsFuzz, ALineBufferHoldsItsBound) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    LineBuffer buffer;
    for (bool open = true; open && maker.prng().chance(0.99);) {
      std::string bytes = maker.make();
      if (maker.prng().chance(0.3)) bytes += '\n';
      if (maker.prng().chance(0.05)) bytes.append(maker.prng().below(80000), 'x');
      open = buffer.feed(bytes, [](std::string_view line) {
        ASSERT_LT(line.size(), kLineBytesMax);
        ASSERT_EQ(line.find('\n'), std::string_view::npos);
      });
    }
  }
}

}  // namespace
}  // namespace netfold::tests
