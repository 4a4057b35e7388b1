#include "wire/control/proofs.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <cstring>
#include <set>

namespace netfold::control {
namespace {

Join join_of(const char* job) {
  Join join;
  join.job = job;
  join.world = 4;
  join.rank = 1;
  join.udp_port = 4000;
  return join;
}

TEST(Secret, IsNothingIfEmpty) {
  EXPECT_FALSE(Secret::from(""));
  EXPECT_TRUE(Secret::from("x"));
  EXPECT_TRUE(Secret::from(std::string(10000, 'x'))) << "any length";
}

// PROTOCOL.md's words, spelled out by hand once: another implementation must come to the same bytes.
TEST(Secret, TokenFollowsTheProtocol) {
  unsigned char key[32], expected[32];
  crypto_generichash(key, sizeof key, reinterpret_cast<const unsigned char*>("sesame"), 6, nullptr, 0);
  const char covered[] = "\0\0\0\x0bnetfold-job\0\0\0\5train";
  crypto_generichash(expected, sizeof expected, reinterpret_cast<const unsigned char*>(covered), sizeof covered - 1,
                     key, sizeof key);
  const Proof token = Secret::from("sesame")->token("train");
  EXPECT_EQ(std::memcmp(token.data(), expected, sizeof expected), 0);
}

TEST(Secret, JoinProofCoversEveryField) {
  const auto secret = Secret::from("sesame");
  const Nonce nonce{};
  std::set<Proof> proofs{secret->join_proof(nonce, join_of("a"))};
  const auto add = [&](const Nonce& switch_nonce, auto change) {
    Join join = join_of("a");
    change(join);
    EXPECT_TRUE(proofs.insert(secret->join_proof(switch_nonce, join)).second);
  };
  Nonce other{};
  other[15] = std::byte{1};
  add(other, [](Join&) {});
  add(nonce, [&](Join& join) { join.nonce = other; });
  add(nonce, [](Join& join) { join.job = "b"; });
  add(nonce, [](Join& join) { join.world = 5; });
  add(nonce, [](Join& join) { join.rank = 2; });
  add(nonce, [](Join& join) { join.udp_port = 4001; });
  add(nonce, [](Join& join) { join.mtu = 9000; });
  add(nonce, [](Join& join) { join.bfp.block = 32; });
  add(nonce, [](Join& join) { join.bfp.mantissa = 3; });
  add(nonce, [](Join& join) { join.window = 3; });
  const auto below = [&add, &nonce](auto change) {
    add(nonce, [&](Join& join) {
      join.below = Below{{7000}, 7171, {}};
      change(join);
    });
  };
  below([](Join&) {});
  below([](Join& join) { join.below->udp_ports = {7000, 7001}; });
  below([](Join& join) { join.below->port = 7172; });
  below([](Join& join) { join.below->id[7] = std::byte{1}; });
  below([](Join& join) { join.token = Proof{}; });
  EXPECT_TRUE(proofs.insert(Secret::from("other")->join_proof(nonce, join_of("a"))).second);
}

TEST(Secret, AdmitProofCoversEveryField) {
  const auto secret = Secret::from("sesame");
  const Nonce nonce{};
  const Admitted granted{1, 2, 512, 1456, {5, 6}, true, nonce, {}};
  std::set<Proof> proofs{secret->admit_proof(nonce, granted)};
  for (auto change :
       std::vector<void (*)(Admitted&)>{[](Admitted& m) { m.job_id = 9; }, [](Admitted& m) { m.epoch = 9; },
                                        [](Admitted& m) { m.slots = 256; }, [](Admitted& m) { m.payload_bytes = 1000; },
                                        [](Admitted& m) {
                                          m.udp_ports = {6, 5};
                                        },
                                        [](Admitted& m) { m.udp_ports = {5}; }, [](Admitted& m) { m.tagged = false; },
                                        [](Admitted& m) { m.salt[0] = std::byte{1}; }}) {
    Admitted changed = granted;
    change(changed);
    EXPECT_TRUE(proofs.insert(secret->admit_proof(nonce, changed)).second);
  }
}

TEST(Secret, TagKeysDifferBySaltJobEpochAndSecret) {
  Nonce salt{};
  const auto secret = Secret::from("sesame");
  std::set<wire::TagKey> keys{secret->tag_key(salt, 1, 2)};
  EXPECT_TRUE(keys.insert(secret->tag_key(salt, 2, 1)).second);
  EXPECT_TRUE(keys.insert(secret->tag_key(salt, 1, 3)).second);
  EXPECT_TRUE(keys.insert(Secret::from("other")->tag_key(salt, 1, 2)).second);
  salt[3] = std::byte{1};
  EXPECT_TRUE(keys.insert(secret->tag_key(salt, 1, 2)).second);
}

TEST(Secret, StreamKeysDifferByStreamDirectionAndAllThatTheRanksAgreed) {
  const auto secret = Secret::from("sesame");
  const RankPair pair{.asks = 3, .answers = 1, .world = 4, .asker_tags = true, .answerer_tags = true};
  std::set<wire::TagKey> keys{secret->stream_key("data", pair, true)};
  EXPECT_TRUE(keys.insert(secret->stream_key("data", pair, false)).second);
  EXPECT_TRUE(keys.insert(secret->stream_key("messages", pair, true)).second);
  EXPECT_TRUE(keys.insert(Secret::from("other")->stream_key("data", pair, true)).second);
  std::set<Proof> proofs{secret->rank_proof("data", pair)};
  for (const auto change : std::vector<void (*)(RankPair&)>{
           [](RankPair& p) { p.asks = 2; }, [](RankPair& p) { p.answers = 2; }, [](RankPair& p) { p.world = 5; },
           [](RankPair& p) { p.asked[0] = std::byte{1}; }, [](RankPair& p) { p.answered[0] = std::byte{1}; },
           [](RankPair& p) { p.asker_tags = false; }, [](RankPair& p) { p.answerer_tags = false; },
           [](RankPair& p) { p.asker_tags = p.answerer_tags = false; }}) {
    RankPair changed = pair;
    change(changed);
    EXPECT_TRUE(keys.insert(secret->stream_key("data", changed, true)).second);
    EXPECT_TRUE(proofs.insert(secret->rank_proof("data", changed)).second);
  }
}

TEST(Proofs, Compare) {
  Proof a{}, b{};
  EXPECT_TRUE(equal_in_constant_time(a, b));
  b[31] = std::byte{1};
  EXPECT_FALSE(equal_in_constant_time(a, b));
}

}  // namespace
}  // namespace netfold::control
