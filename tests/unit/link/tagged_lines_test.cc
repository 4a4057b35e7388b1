// Control messages with tags: whatever happens to the bytes on the way, a line that is told was said, in its place.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>

#include "base/prng.h"
#include "link/tagged_lines.h"
#include "socket_pairs.h"
#include "test_tags.h"

namespace netfold::link {
namespace {

constexpr std::uint64_t kOurKey = 11, kTheirKey = 22;
using Lines = std::vector<std::string>;
using State = ControlLink::State;

std::unique_ptr<TaggedLines> tagged(Descriptor socket, std::uint64_t sends, std::uint64_t receives) {
  fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return std::make_unique<TaggedLines>(std::make_unique<ControlSocket>(socket.release()),
                                       std::make_unique<TestTags>(sends, receives));
}

// Both ends of a connection with something in between that sees all bytes which one side sends.
struct Between {
  Between() : out(tcp_pair()), in(tcp_pair()) {
    says = tagged(std::move(out[0]), kOurKey, kTheirKey);
    hears = tagged(std::move(in[0]), kTheirKey, kOurKey);
  }

  // The bytes that `says` has sent, as lines with their ends.
  Lines taken() {
    std::array<char, 65536> bytes;
    const ssize_t got = recv(out[1].get(), bytes.data(), bytes.size(), 0);
    Lines lines(1);
    for (ssize_t i = 0; i < got; ++i) {
      lines.back() += bytes[static_cast<std::size_t>(i)];
      if (bytes[static_cast<std::size_t>(i)] == '\n') lines.emplace_back();
    }
    lines.pop_back();
    return lines;
  }
  ControlLink::Outcome pass_on(const Lines& lines) {
    for (const std::string& line : lines) EXPECT_EQ(send(in[1].get(), line.data(), line.size(), 0), line.size());
    pollfd ready{hears->descriptor(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 1000), 1);
    return hears->read([&](std::string_view line) { told.emplace_back(line); });
  }

  std::array<Descriptor, 2> out, in;
  std::unique_ptr<TaggedLines> says, hears;
  Lines told;
};

TEST(TaggedLines, TellWhatWasSaid) {
  Between between;
  between.says->write("one\n");
  between.says->write("two\n\nthree, the longest\n");
  const Lines sent = between.taken();
  ASSERT_EQ(sent.size(), 4);
  EXPECT_EQ(sent[0].size(), 2 * sizeof(Tag) + 4);
  EXPECT_EQ(between.pass_on(sent).state, State::kOpen);
  EXPECT_EQ(between.told, (Lines{"one", "two", "", "three, the longest"}));
}

TEST(TaggedLines, GoBothWays) {
  auto [one, other] = tcp_pair();
  const auto left = tagged(std::move(one), kOurKey, kTheirKey), right = tagged(std::move(other), kTheirKey, kOurKey);
  for (int i = 0; i < 3; ++i) {
    for (const auto& [from, to] : {std::pair(&left, &right), std::pair(&right, &left)}) {
      (*from)->write("note\n");
      pollfd ready{(*to)->descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 1000), 1);
      Lines told;
      EXPECT_EQ((*to)->read([&](std::string_view line) { told.emplace_back(line); }).state, State::kOpen);
      EXPECT_EQ(told, Lines{"note"});
    }
  }
}

// A line that is changed, left out, repeated, moved, added or sent back: none of them is told, nor one that follows.
TEST(TaggedLines, EndWithTheFirstWrongOne) {
  const std::vector<std::pair<const char*, std::function<void(Lines&, Prng&)>>> faults = {
      {"changed",
       [](Lines& lines, Prng& prng) {
         std::string& line = lines[1];
         line[prng.below(line.size() - 1)] ^= static_cast<char>(1 << prng.below(3));
       }},
      {"left out", [](Lines& lines, Prng&) { lines.erase(lines.begin() + 1); }},
      {"repeated", [](Lines& lines, Prng&) { lines.insert(lines.begin() + 1, lines[0]); }},
      {"moved", [](Lines& lines, Prng&) { std::swap(lines[1], lines[2]); }},
      {"added", [](Lines& lines, Prng&) { lines.insert(lines.begin() + 1, "failed\n"); }},
      {"cut", [](Lines& lines, Prng& prng) { lines[1].erase(prng.below(lines[1].size() - 1), 1); }},
      {"empty", [](Lines& lines, Prng&) { lines[1] = "\n"; }},
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    for (const auto& [name, fault] : faults) {
      SCOPED_TRACE(name);
      Between between;
      between.says->write("first\nsecond\nthird\nfourth\n");
      Lines lines = between.taken();
      fault(lines, prng);
      const auto outcome = between.pass_on(lines);
      EXPECT_EQ(outcome.state, State::kGarbage);
      EXPECT_EQ(outcome.why, "sent a message with a wrong tag");
      EXPECT_EQ(between.told, Lines{"first"});
      EXPECT_EQ(between.pass_on({lines.back()}).state, State::kGarbage);
      EXPECT_EQ(between.told, Lines{"first"});
    }
  }
}

// A message of one side is not one of the other.
TEST(TaggedLines, DoNotTakeWhatTheyHaveSaid) {
  auto [one, other] = tcp_pair();
  const auto line = tagged(std::move(one), kOurKey, kTheirKey);
  line->write("failed\n");
  std::array<char, 256> bytes;
  const ssize_t got = recv(other.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(got, 0);
  ASSERT_EQ(send(other.get(), bytes.data(), static_cast<std::size_t>(got), 0), got);
  pollfd ready{line->descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 1000), 1);
  EXPECT_EQ(line->read([](std::string_view) { FAIL(); }).state, State::kGarbage);
}

}  // namespace
}  // namespace netfold::link
