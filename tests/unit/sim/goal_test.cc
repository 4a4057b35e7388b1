// GOAL text: what it means, errors that name the line, and no text that crashes the reader.
#include "sim/goal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"

namespace netfold::sim {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPair = R"(num_ranks 2
rank 0 {
l1: calc 100
l2: send 65536b to 1 tag 3
l2 requires l1
}
rank 1 {
l1: recv 65536b from 0 tag 3
}
)";

TEST(Goal, ASendMeetsItsReceiveAndWaitsForWhatItRequires) {
  const auto read = read_goal(kPair);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->tasks.size(), 3u);
  EXPECT_DOUBLE_EQ(read->tasks[0].delay_s, 100e-9);
  EXPECT_EQ(read->tasks[1].receiver, 1);
  EXPECT_DOUBLE_EQ(read->tasks[1].size_bits, 65536 * 8);
  EXPECT_EQ(read->needs(1), 1);
  EXPECT_EQ(read->needs(2), 1);
}

struct Wrong {
  const char* text;
  const char* said;
};

class WrongGoal : public ::testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(
    All, WrongGoal,
    ::testing::Values(Wrong{"", "num_ranks"}, Wrong{"num_ranks 0\n", "line 1"},
                      Wrong{"num_ranks 2\nrank 2 {\n}\n", "line 2"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: jump 3\n}\n", "line 3: 'jump'"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: send 5 to 1\n}\n", "line 3: write 'send Nb to RANK"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: send 5b to 2\n}\n", "line 3: rank 0 cannot reach 2"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: calc 5\nl1: calc 5\n}\n", "line 4: rank 0 has 'l1' twice"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: calc 5\nl1 requires l2\n}\n", "line 4: rank 0 has no 'l2'"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: calc 5\n", "ends inside rank 0"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: send 5b to 1\n}\n", "line 3: rank 1 never receives"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: recv 5b from 1\n}\n", "line 3: rank 0 waits for rank 1"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: send 5b to 1\n}\nrank 1 {\nl1: recv 6b from 0\n}\n",
                            "line 6: 6 bytes meet 5 of line 3"},
                      Wrong{"num_ranks 2\nrank 0 {\nl1: recv 5b from 1\nl2: send 5b to 1\nl2 requires l1\n}\nrank 1 {\n"
                            "l1: recv 5b from 0\nl2: send 5b to 0\nl2 requires l1\n}\n",
                            "waits for what never comes"}));

TEST_P(WrongGoal, IsAnErrorThatSaysWhere) {
  const auto read = read_goal(GetParam().text);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().said));
}

TEST(Goal, NoTextCrashesTheReader) {
  constexpr std::string_view kWords[] = {
      "num_ranks", "rank", "{",  "}",  "l1:", "l2:",      "send", "recv", "calc", "to",
      "from",      "tag",  "1b", "0",  "1",   "2",        "-1",   "l1",   "l2",   "99999999999999999999",
      "requires",  "\n",   "//", "\t", "b",   "irequires"};
  Prng prng(7);
  std::size_t understood = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = "num_ranks 2\nrank 0 {\n";
    for (std::uint64_t left = prng.below(20); left > 0; --left) {
      text += kWords[prng.below(std::size(kWords))];
      text += prng.chance(0.3) ? '\n' : ' ';
    }
    understood += read_goal(text + "\n}\n") ? 1 : 0;
  }
  EXPECT_GT(understood, 0u);
}

}  // namespace
}  // namespace netfold::sim
