// Streams with tags: only bytes under a right tag can be read, each in its place, whatever else comes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/prng.h"
#include "link/tcp/stripes.h"
#include "link/tcp/tcp_stream.h"
#include "socket_pairs.h"
#include "test_tags.h"

namespace netfold::link {
namespace {

constexpr std::uint64_t kOurStreamKey = 11, kTheirStreamKey = 22;
constexpr const char* kWrongTag = "sent bytes with a wrong tag";

using Bytes = std::vector<std::byte>;

std::byte tagged_byte_at(std::uint64_t position) {
  return static_cast<std::byte>(Prng(position / 8).next() >> (8 * (position % 8)));
}

// A stripe as the other side sends it.
Bytes stripe(std::uint64_t position, std::uint32_t size, std::uint64_t key = kTheirStreamKey) {
  Bytes all(kStripeHeaderBytes + size);
  const StripeHeader header{position, size};
  std::memcpy(all.data(), &header, kStripeHeaderBytes);
  for (std::uint32_t i = 0; i < size; ++i) all[kStripeHeaderBytes + i] = tagged_byte_at(position + i);
  const Tag tag =
      TestTags(key, 0).of(std::span(all).first(kStripeHeaderBytes), std::span(all).subspan(kStripeHeaderBytes));
  all.insert(all.end(), tag.begin(), tag.end());
  return all;
}

// A stream, and the other ends of its connections, by which a test sends what it likes.
struct Receiver {
  explicit Receiver(int connections = 1) {
    std::vector<Descriptor> own;
    for (int each = 0; each < connections; ++each) {
      auto [one, other] = tcp_pair();
      own.push_back(std::move(one));
      others.push_back(std::move(other));
    }
    link = std::move(*tcp_stream(std::move(own), std::make_unique<TestTags>(kOurStreamKey, kTheirStreamKey)));
  }

  void send_by(int connection, std::span<const std::byte> bytes) {
    const int socket = others[static_cast<std::size_t>(connection)].get();
    ASSERT_EQ(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  // Reads all but `leave` bytes of what comes, until there are bytes up to this position, or no more will come.
  void read_until(std::uint64_t position, std::size_t leave = 0) {
    for (const Nanoseconds until = now() + 10 * kSecond; now() < until;) {
      const auto data = link->readable();
      const std::size_t size = std::max(data.size(), leave) - leave;
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_EQ(data[i], tagged_byte_at(link->consumed() + i)) << "byte " << link->consumed() + i;
      }
      link->consume(size);
      if (link->consumed() + data.size() - size >= position || (link->ended() && size == 0)) return;
      if (link->ended()) continue;
      std::vector<pollfd> polls;
      const bool has_more = link->arm(true, false);
      link->add_polls(polls);
      if (!has_more) poll(polls.data(), polls.size(), 1000);
    }
    ADD_FAILURE() << "nothing wakes the reader at byte " << link->consumed();
  }
  // Takes what comes until no descriptor is ready any more, and the reader would sleep.
  void take_in() {
    std::vector<pollfd> polls;
    do {
      [[maybe_unused]] const auto data = link->readable();
      ASSERT_FALSE(link->arm(true, false));
      polls.clear();
      link->add_polls(polls);
    } while (poll(polls.data(), polls.size(), 50) > 0);
  }
  void read_to_the_end() { read_until(UINT64_MAX); }

  std::vector<Descriptor> others;
  std::unique_ptr<StreamLink> link;
};

class TaggedStreams : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Connections, TaggedStreams, ::testing::Values(1, 2));

TEST_P(TaggedStreams, GiveOnlyBytesUnderARightTag) {
  constexpr std::uint32_t kFirst = 40, kSecond = 300;
  const Bytes right = stripe(kFirst, kSecond);
  for (std::size_t bit = 0; bit < 8 * right.size(); bit += bit < 8 * kStripeHeaderBytes ? 1 : 7) {
    Receiver receiver(GetParam());
    receiver.send_by(0, stripe(0, kFirst));
    Bytes wrong = right;
    wrong[bit / 8] ^= std::byte{1} << (bit % 8);
    receiver.send_by(0, wrong);
    StripeHeader header;
    std::memcpy(&header, wrong.data(), kStripeHeaderBytes);
    if (header.is_valid() && header.size > kSecond) {  // it waits for the rest
      receiver.read_until(kFirst);
      ASSERT_FALSE(receiver.link->ended()) << "bit " << bit;
      receiver.send_by(0, Bytes(kStripeBytesMax));
    }
    receiver.read_to_the_end();
    ASSERT_EQ(receiver.link->consumed(), kFirst) << "bit " << bit;
    ASSERT_EQ(receiver.link->ended(), kWrongTag) << "bit " << bit;
  }
}

TEST_P(TaggedStreams, RefuseWhatTheReceiverItselfHasSent) {
  Receiver receiver(GetParam());
  receiver.send_by(0, stripe(0, 100, kOurStreamKey));
  receiver.read_to_the_end();
  EXPECT_EQ(receiver.link->consumed(), 0u);
  EXPECT_EQ(receiver.link->ended(), kWrongTag);
}

TEST_P(TaggedStreams, TakeAReplayAsADuplicate) {
  Receiver receiver(GetParam());
  for (const auto position : {0u, 0u, 100u, 0u, 100u, 200u, 100u}) receiver.send_by(0, stripe(position, 100));
  receiver.send_by(0, stripe(300, 1));
  receiver.read_until(301);
  EXPECT_EQ(receiver.link->consumed(), 301u);
  EXPECT_FALSE(receiver.link->ended());
}

// In the buffer other bytes are in its place by now, and they are not read yet.
TEST_P(TaggedStreams, TakeAReplayFromTheBeginningAsADuplicate) {
  Receiver receiver(GetParam());
  const std::uint64_t ring = receiver.link->writable().size();  // both directions have the same
  for (std::uint64_t position = 0; position < ring; position += kStripeBytesMax) {
    receiver.send_by(0, stripe(position, kStripeBytesMax));
    receiver.read_until(position + kStripeBytesMax);
  }
  receiver.send_by(0, stripe(ring, 5000));
  receiver.send_by(0, stripe(0, 5000));
  receiver.send_by(0, stripe(ring + 5000, 5000));
  receiver.read_until(ring + 10'000);
  EXPECT_EQ(receiver.link->consumed(), ring + 10'000);
  EXPECT_FALSE(receiver.link->ended());
}

TEST_P(TaggedStreams, EndWithinAStripeWithoutItsBytes) {
  for (const std::size_t cut : {1u, 15u, 16u, 17u, 200u, 316u, 331u}) {
    Receiver receiver(GetParam());
    receiver.send_by(0, stripe(0, 40));
    const Bytes second = stripe(40, 300);
    receiver.send_by(0, std::span(second).first(cut));
    receiver.others.clear();
    receiver.read_to_the_end();
    EXPECT_EQ(receiver.link->consumed(), 40u) << cut;
    EXPECT_EQ(receiver.link->ended(), "closed its connection") << cut;
  }
}

// A stripe comes by both, one after the other or at the same time.
TEST(TaggedStreams, KeepConnectionsApartUntilATagIsRight) {
  const Bytes right = stripe(0, 1000);
  Bytes forged = right;
  for (std::size_t i = kStripeHeaderBytes; i < kStripeHeaderBytes + 600; ++i) forged[i] ^= std::byte{0xff};
  Receiver receiver(2);
  receiver.send_by(0, std::span(forged).first(kStripeHeaderBytes + 500));
  EXPECT_TRUE(receiver.link->readable().empty());
  receiver.send_by(1, right);
  receiver.read_until(1000);
  EXPECT_EQ(receiver.link->consumed(), 1000u);
  receiver.send_by(0, std::span(forged).subspan(kStripeHeaderBytes + 500));
  receiver.read_to_the_end();
  EXPECT_EQ(receiver.link->consumed(), 1000u);
  EXPECT_EQ(receiver.link->ended(), kWrongTag);
}

// The stripe that all others wait for comes behind them in the same connection, as it does where another one was lost.
// The reader has left a little unread.
TEST(TaggedStreams, HaveRoomForAMissingStripeBehindAllOthers) {
  constexpr std::uint32_t kStripe = 60'000;
  constexpr std::uint64_t kLeft = 65'000;
  Receiver receiver(2);
  const std::uint64_t ring = receiver.link->writable().size(), missing = 4 * kStripe;
  for (std::uint64_t position = 0; position < missing; position += kStripe) {
    receiver.send_by(0, stripe(position, kStripe));
    receiver.read_until(position + kStripe, kLeft);
  }
  const std::uint64_t end = missing + (ring - kLeft) / kStripe * kStripe;
  std::thread sender([&] {
    for (std::uint64_t position = missing + kStripe; position < end; position += kStripe) {
      receiver.send_by(1, stripe(position, kStripe));
    }
    receiver.send_by(1, stripe(missing, kStripe));
  });
  receiver.read_until(end, kLeft);
  sender.join();
  EXPECT_EQ(receiver.link->consumed() + kLeft, end);
}

// A stripe that had no place waits in its connection. No descriptor says that the reader has made room.
TEST(TaggedStreams, SayThatAWaitingStripeHasRoom) {
  Receiver receiver(2);
  const std::uint64_t ring = receiver.link->writable().size();
  constexpr std::uint32_t kStripe = 50'000;
  receiver.send_by(0, stripe(0, kStripe));
  receiver.read_until(kStripe, kStripe);
  receiver.send_by(1, stripe(ring, kStripe));  // begins where the ring ends
  receiver.take_in();
  EXPECT_FALSE(receiver.link->arm(true, false));
  receiver.link->consume(kStripe);
  EXPECT_TRUE(receiver.link->arm(true, false));
  EXPECT_FALSE(receiver.link->arm(false, false));
  EXPECT_TRUE(receiver.link->readable().empty());
  EXPECT_FALSE(receiver.link->arm(true, false)) << "it is in its place, and what comes before is missing";
}

// Seeds draw the sizes, the parts in which stripes come, and the connection that brings each.
TEST(TaggedStreams, BringStripesOfAnySizeInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Prng random(seed);
    const int connections = 1 + static_cast<int>(random.below(3));
    Receiver receiver(connections);
    std::vector<Bytes> queues(static_cast<std::size_t>(connections));
    std::uint64_t total = 0;
    for (int count = 0; count < 60; ++count) {
      const auto size = static_cast<std::uint32_t>(1 + random.below(random.chance(0.5) ? 300 : kStripeBytesMax));
      const Bytes one = stripe(total, size);
      total += size;
      for (int copies = random.chance(0.2) ? 2 : 1; copies > 0; --copies) {
        Bytes& queue = queues[random.below(queues.size())];
        queue.insert(queue.end(), one.begin(), one.end());
      }
    }
    for (int turn = 0; turn < 100'000 && receiver.link->consumed() < total; ++turn) {
      const std::size_t which = random.below(queues.size());
      Bytes& queue = queues[which];
      const std::size_t part = std::min<std::size_t>(queue.size(), random.below(random.chance(0.5) ? 40 : 150'000));
      const ssize_t sent = send(receiver.others[which].get(), queue.data(), part, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) queue.erase(queue.begin(), queue.begin() + sent);
      const auto data = receiver.link->readable();
      const std::size_t size = random.below(data.size() + 1);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(data[i], tagged_byte_at(receiver.link->consumed() + i));
      receiver.link->consume(size);
    }
    ASSERT_EQ(receiver.link->consumed(), total);
    ASSERT_FALSE(receiver.link->ended());
  }
}

// The other side sends nothing more, and may still read.
TEST(TaggedStreams, SendOverASingleConnectionThatHasEnded) {
  Receiver sender;
  shutdown(sender.others[0].get(), SHUT_WR);
  sender.read_to_the_end();
  sender.link->commit(1000);
  sender.link->flush();
  EXPECT_FALSE(sender.link->has_unsent());
  Bytes come(2000);
  const std::size_t whole = kStripeHeaderBytes + 1000 + sizeof(Tag);
  EXPECT_EQ(recv(sender.others[0].get(), come.data(), whole, MSG_WAITALL), static_cast<ssize_t>(whole));
}

TEST(TaggedStreams, SendAgainWhatALostConnectionHadInPart) {
  Receiver receiver(2);
  const int small = 1 << 14;
  setsockopt(receiver.others[0].get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const Descriptor lost(dup(receiver.others[0].get()));
  const int lost_socket = receiver.others[0].get();
  const auto sender =
      std::move(*tcp_stream(std::move(receiver.others), std::make_unique<TestTags>(kTheirStreamKey, kOurStreamKey)));
  const std::uint64_t total = sender->writable().size();
  const auto room = sender->writable();
  for (std::uint64_t i = 0; i < total; ++i) room[i] = tagged_byte_at(i);
  sender->commit(total);
  const auto is_within_a_stripe = [&] {
    std::vector<pollfd> polls;
    sender->add_polls(polls);
    return std::ranges::any_of(polls, [&](const pollfd& each) { return each.fd == lost_socket && each.events != 0; });
  };
  for (int turn = 0; turn < 100 && !is_within_a_stripe(); ++turn) sender->flush();
  ASSERT_TRUE(is_within_a_stripe());
  shutdown(lost.get(), SHUT_WR);
  for (int turn = 0; turn < 100'000 && receiver.link->consumed() < total; ++turn) {
    sender->flush();
    const auto data = receiver.link->readable();
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], tagged_byte_at(receiver.link->consumed() + i));
    receiver.link->consume(data.size());
  }
  EXPECT_EQ(receiver.link->consumed(), total);
  EXPECT_FALSE(receiver.link->ended());
}

}  // namespace
}  // namespace netfold::link
