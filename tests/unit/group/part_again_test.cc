// A part done again among the ranks by messages has the bits of the switch, in whatever order the messages come.
#include "group/via_both/part_again.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "base/prng.h"
#include "numbers/codec.h"
#include "support/random_seed.h"
#include "support/same_bits.h"
#include "testing/plain_fold.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;
using schedule::Collective;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSeeds = 300;
constexpr std::uint64_t kNumber = 77;  // any

CollectiveRequest draw_request(Prng& prng) {
  constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather};
  constexpr std::array kFormats{Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp};
  constexpr std::array kTypes{ElementType::kFp32, ElementType::kFp16, ElementType::kBf16};
  CollectiveRequest request;
  request.collective = kCollectives[prng.below(kCollectives.size())];
  request.count = 1 + prng.below(prng.chance(0.5) ? 300 : 40'000);
  const bool has_parts = request.collective != Collective::kAllReduce;
  if (has_parts && prng.chance(0.5)) request.part_stride = request.count + prng.below(300);
  request.average = request.collective != Collective::kAllGather && prng.chance(0.3);
  if (request.collective == Collective::kAllGather) {
    request.format = Format::kNone;
  } else if (prng.chance(0.2)) {
    request.type = ElementType::kInt32;
    request.format = Format::kInt32;
  } else {
    request.type = kTypes[prng.below(kTypes.size())];
    request.format = kFormats[prng.below(kFormats.size())];
    request.bfp = {static_cast<std::uint8_t>(8 << prng.below(5)), static_cast<std::uint8_t>(2 + prng.below(6))};
    request.is_encoded = request.format == Format::kBfp && request.type == ElementType::kFp32 && !request.average &&
                         request.collective == Collective::kAllReduce && prng.chance(0.5);
  }
  return request;
}

Bytes draw_elements(Prng& prng, ElementType type, std::size_t count) {
  Bytes bytes(count * numbers::size_bytes(type));
  if (type == ElementType::kInt32) {
    for (std::byte& each : bytes) each = static_cast<std::byte>(prng.next());
    return bytes;
  }
  std::vector<float> values(count);
  for (float& each : values) each = static_cast<float>(prng.unit() - 0.5);
  const Format plain = type == ElementType::kFp16   ? Format::kFp16
                       : type == ElementType::kBf16 ? Format::kBf16
                                                    : Format::kFp32;
  numbers::encode({plain}, ElementType::kFp32, values.data(), count, bytes.data());
  return bytes;
}

// Ranks that do one part again, and the messages between them.
class Ranks {
 public:
  Ranks(std::uint64_t seed)
      : prng_(seed), world_(2 + static_cast<int>(prng_.below(16))), request_(draw_request(prng_)) {
    const auto ranks = static_cast<std::size_t>(world_);
    const std::size_t elements =
        request_.is_encoded ? request_.count : in_bytes(request_, world_) / numbers::size_bytes(request_.type);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      inputs_.push_back(draw_elements(prng_, request_.type, elements));
      given_.push_back(request_.is_encoded ? encoded(inputs_.back()) : inputs_.back());
      outputs_.emplace_back(out_bytes(request_, world_));
      is_over_.push_back(prng_.chance(0.3));
    }
  }

  void run() {
    for (int rank = 0; rank < world_; ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      CollectiveRequest request = request_;
      request.in = given_[place].data();
      request.out = outputs_[place].data();
      const KeptPart part{request, nullptr, is_over_[place] ? KeptPart::kOver : Ticket{5}};
      parts_.push_back(std::make_unique<PartAgain>(part, rank, world_, kNumber));
      parts_.back()->begin(submit(rank));
    }
    while (!ready_.empty()) deliver(prng_.below(ready_.size()));
  }

  void check() const {
    EXPECT_TRUE(sends_.empty() && receives_.empty()) << "a message has no other end";
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
      EXPECT_TRUE(parts_[rank]->is_over()) << "rank " << rank;
      const Bytes none(outputs_[rank].size());
      EXPECT_TRUE(tests::are_same_bits(outputs_[rank], is_over_[rank] ? none : expected(rank))) << "rank " << rank;
    }
  }

 private:
  using End = std::tuple<int, int, std::uint64_t>;  // from, to, tag
  struct Handed {
    Ticket ticket;
    CollectiveRequest message;
  };

  PartAgain::Submit submit(int rank) {
    return [this, rank](const CollectiveRequest& message) {
      const bool is_send = message.collective == Collective::kSend;
      const End end{is_send ? rank : message.peer, is_send ? message.peer : rank, message.tag};
      auto& own = is_send ? sends_ : receives_;
      const auto& others = is_send ? receives_ : sends_;
      EXPECT_TRUE(own.emplace(end, Handed{++tickets_, message}).second) << "twice the same message";
      if (others.contains(end)) ready_.push_back(end);
      return tickets_;
    };
  }
  void deliver(std::size_t at) {
    const End end = ready_[at];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
    const Handed sent = sends_.extract(end).mapped(), received = receives_.extract(end).mapped();
    ASSERT_EQ(sent.message.count, received.message.count);
    std::memcpy(received.message.out, sent.message.in, sent.message.count);
    const auto [from, to, tag] = end;
    EXPECT_TRUE(parts_[static_cast<std::size_t>(from)]->end(sent.ticket, submit(from)));
    EXPECT_TRUE(parts_[static_cast<std::size_t>(to)]->end(received.ticket, submit(to)));
    EXPECT_FALSE(parts_[static_cast<std::size_t>(to)]->end(received.ticket, submit(to)));
  }

  numbers::WireFormat wire() const { return {request_.format, request_.bfp}; }
  Bytes encoded(const Bytes& elements) const {
    Bytes bytes(numbers::encoded_bytes(wire(), request_.count));
    numbers::encode(wire(), request_.type, elements.data(), request_.count, bytes.data());
    return bytes;
  }
  Bytes expected(std::size_t rank) const {
    const Bytes result = testing::plain_result(request_, inputs_, rank);
    return request_.is_encoded ? encoded(result) : result;
  }

  Prng prng_;
  const int world_;
  const CollectiveRequest request_;
  std::vector<Bytes> inputs_, given_, outputs_;
  std::vector<bool> is_over_;
  std::vector<std::unique_ptr<PartAgain>> parts_;
  std::map<End, Handed> sends_, receives_;
  std::vector<End> ready_;  // both ends are there
  Ticket tickets_ = 0;
};

TEST(PartAgain, HasTheBitsOfTheSwitch) {
  for (const std::uint64_t seed : tests::random_seeds(kSeeds)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Ranks ranks(seed);
    ranks.run();
    ranks.check();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace netfold::group
