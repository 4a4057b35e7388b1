#include "wire/control/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/line_buffer.h"

namespace netfold::control {
namespace {

using ::testing::HasSubstr;

Nonce nonce_of(int first) {
  Nonce nonce;
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return nonce;
}

std::string without_newline(std::string line) {
  EXPECT_TRUE(line.ends_with('\n'));
  line.pop_back();
  return line;
}

template <class T>
void expect_round_trip(const T& message) {
  const std::string line = without_newline(emit(message));
  const auto back = parse(line);
  ASSERT_TRUE(back) << back.error().message << " in " << line;
  ASSERT_TRUE(std::holds_alternative<T>(*back)) << line;
  EXPECT_EQ(std::get<T>(*back), message) << line;
}

TEST(Messages, ComeBackAsTheyWent) {
  Proof proof;
  proof.fill(std::byte{0xab});
  expect_round_trip(Hello{kControlVersion, nonce_of(1), true, true, 0.25});
  expect_round_trip(Hello{kControlVersion, nonce_of(9), false, false, 2});
  expect_round_trip(Join{kControlVersion, "train/a:1", 8, 7, 4791, 9000, {32, 5}, 1024, 12.5, nonce_of(3), proof, {}});
  expect_round_trip(Join{kControlVersion, "x", 1, 0, 1, 256, {8, 2}, 0, 0.001, nonce_of(3), {}, proof});
  expect_round_trip(Join{kControlVersion, "h", 2, 1, 1, 256, {8, 2}, 0, 1, nonce_of(3), {}, proof, true});
  expect_round_trip(Waiting{{0, 5, 1023}});
  expect_round_trip(Waiting{});
  expect_round_trip(Admitted{65535, 65535, 65536, 8192, {1, 2, 3, 65535}, true, nonce_of(7), proof});
  expect_round_trip(Admitted{0, 0, 1, 4, {7}, false, nonce_of(0), {}});
  expect_round_trip(Refused{"no", ErrorCode::kAuth, -1, 4});
  expect_round_trip(Heartbeat{});
  expect_round_trip(Heartbeat{SharedWork{0.25, 3.125e6, 25e6}});
  expect_round_trip(Heartbeat{.link_share = LinkShare{.of_fair = 1.25}});
  expect_round_trip(Heartbeat{.link_share = LinkShare{.grant_bytes_s = 1.5e6}});
  expect_round_trip(Heartbeat{.is_late = true});
  expect_round_trip(Left{3});
  expect_round_trip(Failed{"rank 3 is gone", ErrorCode::kPeerFailed, 3});
  expect_round_trip(Leave{});
  expect_round_trip(Leave{true, "it broke", ErrorCode::kTimeout, 2});
  expect_round_trip(Ranks{{0, 5, 1023}, 64, 512, 1400, {{std::byte{1}}, {std::byte{2}}}});
  Join below{.job = "x", .world = 8, .rank = 4, .udp_port = 7000, .nonce = nonce_of(1), .token = proof};
  below.below = Below{{7000, 7001}, 7171, {std::byte{1}}};
  expect_round_trip(below);
  expect_round_trip(Admitted{.udp_ports = {7}, .in_tree = true, .above = "10.0.0.1:7171"});
}

TEST(Messages, TheLongestJoinOfASwitchFits) {
  Join join{kControlVersion,
            std::string(kJobNameBytesMax, 'x'),
            1024,
            1023,
            65535,
            65536,
            {128, 7},
            65536,
            1e6,
            nonce_of(1),
            Proof{},
            Proof{}};
  join.below = Below{std::vector<std::uint16_t>(kBelowPortsMax, 65535), 65535, {}};
  EXPECT_LE(emit(join).size(), kJoinBytesMax);
}

TEST(Messages, RanksAreAscendingAndNotNone) {
  for (const char* ranks : {"[]", "[1,0]", "[2,2]", "[1024]"}) {
    const auto parsed = parse(
        std::string(R"({"type":"ranks","window":0,"slots":64,"payload_bytes":64,"through":[],"ranks":)") + ranks + "}");
    ASSERT_FALSE(parsed) << ranks;
    EXPECT_THAT(parsed.error().message, HasSubstr("'ranks'"));
  }
}

TEST(Messages, OfAHostHaveNoRank) {
  const Join join{kControlVersion, "train", 4, kHostRank, 4791, 1500, {}, 0, 30, nonce_of(1), {}, {}, true};
  EXPECT_THAT(emit(join), HasSubstr("\"rank\":-1"));
  expect_round_trip(join);
  expect_round_trip(Admitted{1, 2, 512, 1456, {5, 6}, false, nonce_of(1), {}, 0x0a000001});
  expect_round_trip(Admitted{1, 2, 512, 1436, {5, 6}, false, nonce_of(1), {}, IpAddress::from_v6(nonce_of(3))});
}

TEST(Messages, NameTheirTypeFirst) {
  EXPECT_EQ(emit(Heartbeat{}), "{\"type\":\"heartbeat\"}\n");
  EXPECT_EQ(emit(Left{2}), "{\"type\":\"left\",\"rank\":2}\n");
}

TEST(Messages, SayWhichFieldIsWrong) {
  const std::string good = emit(Join{kControlVersion, "train", 4, 3, 4791, 1500, {}, 0, 30, nonce_of(1), {}, {}});
  const struct {
    const char* from;
    const char* to;
    const char* expected;
  } cases[] = {
      {"\"job\":\"train\"", "\"job\":\"\"", "'job'"},
      {"\"job\":\"train\"", "\"job\":\"a b\"", "'job'"},
      {"\"job\":\"train\"", "\"job\":7", "'job'"},
      {"\"world\":4", "\"world\":0", "'world'"},
      {"\"world\":4", "\"world\":1025", "'world'"},
      {"\"world\":4", "\"world\":4.0", "'world'"},
      {"\"world\":4", "\"world\":\"4\"", "'world'"},
      {"\"world\":4", "\"world\":18446744073709551615", "'world'"},
      {"\"rank\":3", "\"rank\":4", "'rank'"},
      {"\"rank\":3", "\"rank\":-2", "'rank'"},
      {"\"udp_port\":4791", "\"udp_port\":0", "'udp_port'"},
      {"\"udp_port\":4791", "\"udp_port\":65536", "'udp_port'"},
      {"\"mtu\":1500", "\"mtu\":255", "'mtu'"},
      {"\"block\":16", "\"block\":17", "'block'"},
      {"\"mantissa\":7", "\"mantissa\":8", "'mantissa'"},
      {"\"window\":0", "\"window\":65537", "'window'"},
      {"\"timeout_s\":30.0", "\"timeout_s\":0", "'timeout_s'"},
      {"\"timeout_s\":30.0", "\"timeout_s\":1e300", "'timeout_s'"},
      {"\"timeout_s\":30.0", "\"timeout_s\":null", "'timeout_s'"},
      {"\"nonce\":\"01", "\"nonce\":\"0g", "'nonce'"},
      {"\"nonce\":\"01", "\"nonce\":\"0", "'nonce'"},
      {"\"type\":\"join\"", "\"type\":\"jion\"", "'jion' is unknown"},
      {"\"type\":\"join\"", "\"type\":1", "no 'type'"},
      {"{", "[", "no JSON"},
  };
  for (const auto& c : cases) {
    std::string line = without_newline(good);
    const auto at = line.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from << " in " << line;
    line.replace(at, std::string(c.from).size(), c.to);
    const auto result = parse(line);
    ASSERT_FALSE(result) << line;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(c.expected)) << line;
  }
}

TEST(Messages, CheckWhatASwitchGrants) {
  const Admitted good{1, 2, 512, 1456, {5, 6}, false, nonce_of(1), {}};
  ASSERT_TRUE(parse(without_newline(emit(good))));
  for (auto spoil : std::vector<void (*)(Admitted&)>{
           [](Admitted& m) { m.slots = 513; }, [](Admitted& m) { m.slots = 0; },
           [](Admitted& m) { m.payload_bytes = 1457; }, [](Admitted& m) { m.payload_bytes = 8196; },
           [](Admitted& m) { m.udp_ports = {}; },
           [](Admitted& m) {
             m.udp_ports = {1, 2, 3};
           },
           [](Admitted& m) { m.udp_ports = {0}; }, [](Admitted& m) { m.slots = 1; }}) {
    Admitted bad = good;
    spoil(bad);
    EXPECT_FALSE(parse(without_newline(emit(bad)))) << emit(bad);
  }
  EXPECT_FALSE(parse(R"({"type":"hello","version":1,"nonce":"00000000000000000000000000000000",)"
                     R"("auth":false,"tagged":true,"heartbeat_s":1})"));
}

TEST(Messages, OfAnotherVersionSayOnlyThat) {
  const auto join = parse(R"({"type":"join","version":2,"anything":"else"})");
  ASSERT_TRUE(join);
  EXPECT_EQ(std::get<Join>(*join).version, 2);
  const auto hello = parse(R"({"type":"hello","version":9})");
  ASSERT_TRUE(hello);
  EXPECT_EQ(std::get<Hello>(*hello).version, 9);
}

// This build speaks version 1 only.
TEST(Messages, HaveTheNewestVersionThatBothSidesSpeak) {
  const auto version_of = [](std::uint16_t newest, std::uint16_t oldest) {
    Hello hello;
    hello.version = newest;
    hello.oldest_version = oldest;
    const auto heard = parse(without_newline(emit(hello)));
    EXPECT_TRUE(heard);
    return common_version(std::get<Hello>(*heard));
  };
  EXPECT_EQ(version_of(1, 1), 1);
  EXPECT_EQ(version_of(2, 1), 1);
  EXPECT_EQ(version_of(2, 2), std::nullopt);
  EXPECT_EQ(version_of(9, 8), std::nullopt);
  EXPECT_FALSE(parse(R"({"type":"hello","version":1,"oldest_version":2})"));
}

TEST(Messages, IgnoreUnknownFields) {
  EXPECT_TRUE(parse(R"({"type":"heartbeat","mood":"good"})"));
  EXPECT_FALSE(parse(R"({"type":"heartbeat","of_switch":2,"switch_bytes_s":1,"link_bytes_s":1})"));
  EXPECT_FALSE(parse(R"({"type":"heartbeat","of_switch":1,"switch_bytes_s":-1,"link_bytes_s":1})"));
  EXPECT_FALSE(parse(R"({"type":"heartbeat","of_switch":1})"));
}

TEST(Messages, RefuseWhatIsTooLongOrTooDeep) {
  EXPECT_FALSE(parse(std::string(kLineBytesMax, ' ')));
  EXPECT_FALSE(parse(std::string(60000, '[')));
  EXPECT_FALSE(parse(R"({"type":"heartbeat","x":)" + std::string(30000, '[') + std::string(30000, ']')));
  std::string many = R"({"type":"waiting","present":[0)";
  for (std::size_t i = 0; i < kWorldMax; ++i) many += ",1";
  EXPECT_FALSE(parse(many + "]}"));
}

TEST(Messages, CutAndCleanReasons) {
  const std::string nasty = "line\nbreak \x1b[31m \xff\xfe " + std::string(5000, 'x');
  const auto back = parse(without_newline(emit(Failed{nasty, ErrorCode::kSystem, -1})));
  ASSERT_TRUE(back) << back.error().message;
  const auto& reason = std::get<Failed>(*back).reason;
  EXPECT_EQ(reason.size(), kReasonBytesMax);
  for (const char c : reason) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

TEST(LineBuffer, CutsLinesWhereverTheBytesAreCut) {
  const std::string text = "one\ntwo\r\n\nthree\nfo";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    LineBuffer buffer;
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      ASSERT_TRUE(buffer.feed(std::string_view(text).substr(at, piece),
                              [&](std::string_view line) { lines.emplace_back(line); }));
    }
    EXPECT_THAT(lines, ::testing::ElementsAre("one", "two", "", "three"));
  }
}

TEST(LineBuffer, GivesUpOnAnEndlessLine) {
  LineBuffer buffer;
  int lines = 0;
  const auto count = [&](std::string_view) { ++lines; };
  EXPECT_TRUE(buffer.feed(std::string(kLineBytesMax - 1, 'x'), count));
  EXPECT_FALSE(buffer.feed("x", count));
  EXPECT_FALSE(buffer.feed("\nshort\n", count)) << "for good";
  EXPECT_EQ(lines, 0);

  LineBuffer just_fits;
  EXPECT_TRUE(just_fits.feed(std::string(kLineBytesMax - 1, 'x') + "\n", count));
  EXPECT_EQ(lines, 1);
  LineBuffer one_too_many;
  EXPECT_FALSE(one_too_many.feed("ok\n" + std::string(kLineBytesMax, 'x') + "\n", count));
  EXPECT_EQ(lines, 2) << "the line before it counts";
}

}  // namespace
}  // namespace netfold::control
