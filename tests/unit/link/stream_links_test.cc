// Stream links, whatever carries them: bytes come out in order and whole, a full link says so, sleepers are woken.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "link/mirrored_memory.h"
#include "link/shm/handover.h"
#include "link/shm/shm_stream.h"
#include "link/tcp/stripes.h"
#include "link/tcp/tcp_stream.h"
#include "socket_pairs.h"
#include "test_tags.h"

namespace netfold::link {
namespace {

struct End {
  std::unique_ptr<StreamLink> link;
  std::shared_ptr<Doorbell> bell;

  // As an engine sleeps: until news, or for a second.
  bool sleep(bool for_data, bool for_room) {
    if (link->arm(for_data, for_room)) return true;
    std::vector<pollfd> polled;
    if (bell) polled.push_back({bell->descriptor(), POLLIN, 0});
    link->add_polls(polled);
    const bool is_woken = poll(polled.data(), polled.size(), 1000) > 0;
    if (bell) bell->clear();
    return is_woken;
  }
};

std::array<End, 2> pair_of(const std::string& kind) {
  std::array<End, 2> ends;
  if (kind == "Shm") {
    ends[0].bell = Doorbell::create();
    ends[1].bell = Doorbell::create();
    const auto segment = ShmSegment::create(1 << 16);
    const auto door = FdReceiver::open();
    EXPECT_TRUE(send_fd(door->name(), door->token(), segment->descriptor()));
    const auto found = ShmSegment::open(door->take());
    ends[0].link = shm_stream(*segment, true, Doorbell::find(ends[1].bell->name()));
    ends[1].link = shm_stream(*found, false, Doorbell::find(ends[0].bell->name()));
  } else {
    std::array<std::vector<Descriptor>, 2> sockets;
    const bool has_tags = kind.starts_with("Tagged");
    for (int stream = 0; stream < (kind.ends_with("FiveTcp") ? 5 : 1); ++stream) {
      auto pair = tcp_pair();
      for (std::size_t i = 0; i < 2; ++i) sockets[i].push_back(std::move(pair[i]));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto tags = has_tags ? std::make_unique<TestTags>(i, 1 - i) : nullptr;
      ends[i].link = std::move(*tcp_stream(std::move(sockets[i]), std::move(tags)));
    }
  }
  return ends;
}

// The sent data: the bytes of a seeded generator, so that any part can be checked.
std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>(Prng(position / 7).next() >> (8 * (position % 7)));
}

void flush_all(End& end) {
  for (end.link->flush(); end.link->has_unsent(); end.link->flush()) std::this_thread::yield();
}

void send_all(End& end, std::uint64_t total) {
  Prng sizes(1);
  for (std::uint64_t sent = 0; sent < total;) {
    const auto room = end.link->writable();
    const std::size_t size = std::min<std::uint64_t>({room.size(), 1 + sizes.below(50'000), total - sent});
    for (std::size_t i = 0; i < size; ++i) room[i] = byte_at(sent + i);
    end.link->commit(size);
    sent += size;
    if (size == 0) {
      end.link->flush();
      ASSERT_TRUE(end.sleep(false, true)) << "the writer was not woken";
    }
  }
  flush_all(end);
}

void expect_all(End& end, std::uint64_t total) {
  Prng sizes(2);
  for (std::uint64_t received = 0; received < total;) {
    const auto data = end.link->readable();
    const std::size_t size = std::min<std::size_t>(data.size(), 1 + sizes.below(50'000));
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(data[i], byte_at(received + i)) << "byte " << received + i;
    end.link->consume(size);
    received += size;
    end.link->flush();
    if (size > 0) continue;
    ASSERT_TRUE(end.sleep(true, false)) << "the reader was not woken";
  }
}

// How many bytes come, up to `total`; fewer if the other end closes the link, or none come for a second.
std::uint64_t count_bytes(End& end, std::uint64_t total) {
  std::uint64_t received = 0;
  while (received < total) {
    const std::size_t size = end.link->readable().size();
    end.link->consume(size);
    received += size;
    end.link->flush();
    if (size == 0 && (end.link->ended() || !end.sleep(true, false))) break;
  }
  return received;
}

class StreamLinks : public ::testing::TestWithParam<const char*> {};

TEST_P(StreamLinks, CarryBytesBothWays) {
  constexpr std::uint64_t kTotal = 3'000'000;
  auto ends = pair_of(GetParam());
  for (const std::size_t sender : {0u, 1u}) {
    std::thread other([&] { send_all(ends[sender], kTotal); });
    expect_all(ends[1 - sender], kTotal);
    other.join();
    EXPECT_EQ(ends[sender].link->stats().sent_bytes, kTotal);
    EXPECT_EQ(ends[1 - sender].link->stats().received_bytes, kTotal);
  }
}

TEST_P(StreamLinks, AFullLinkSaysSo) {
  auto ends = pair_of(GetParam());
  constexpr std::uint64_t kMost = 1 << 30;
  std::uint64_t sent = 0;
  for (int full = 0; full < 25 && sent < kMost;) {  // the kernel moves bytes on when it has time, and makes room
    ends[0].link->flush();
    const std::size_t size = ends[0].link->writable().size();
    ends[0].link->commit(size);
    sent += size;
    full = size == 0 ? full + 1 : 0;
    if (size == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, kMost) << "the link was never full";
  std::thread other([&] { flush_all(ends[0]); });
  EXPECT_EQ(count_bytes(ends[1], sent), sent);
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Kinds, StreamLinks, ::testing::Values("Shm", "Tcp", "FiveTcp", "TaggedTcp", "TaggedFiveTcp"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// And not before everything that came can be read.
TEST(TcpStream, SaysThatItEnded) {
  for (const char* const kind : {"Tcp", "FiveTcp", "TaggedTcp", "TaggedFiveTcp"}) {
    auto ends = pair_of(kind);
    constexpr std::size_t kSent = 150'000;  // into a third stripe
    ends[0].link->commit(kSent);
    flush_all(ends[0]);
    ends[0].link.reset();
    EXPECT_EQ(count_bytes(ends[1], kSent + 1), kSent) << kind;
    EXPECT_TRUE(ends[1].link->ended()) << kind;
  }
}

// One connection carries nothing more. If its bytes are sent again, they come behind all that the other one has: the
// reader must have room for that, even if it has left a little unread.
TEST(StripedStream, LeavesRoomBehindWhatIsMissing) {
  auto slow = tcp_pair(), quick = tcp_pair();
  const int small = 4096;
  setsockopt(slow[0].get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  setsockopt(slow[1].get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  std::vector<Descriptor> sockets;
  for (auto* const each : {&slow, &quick}) sockets.push_back(std::move((*each)[0]));
  const auto link = std::move(*tcp_stream(std::move(sockets)));
  const std::uint64_t ring = link->writable().size();
  fcntl(quick[1].get(), F_SETFL, O_NONBLOCK);
  Arrivals arrivals;
  std::uint64_t end = 0;
  std::vector<std::byte> come;
  for (int quiet = 0; quiet < 50;) {  // the kernel is asked every 2 ms
    link->commit(link->writable().size());
    link->flush();
    const std::size_t had = come.size();
    come.resize(had + (1 << 20));
    const ssize_t got = recv(quick[1].get(), come.data() + had, 1 << 20, 0);
    come.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    quiet = got > 0 ? 0 : quiet + 1;
    if (got <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::size_t at = 0; at + sizeof(StripeHeader) <= come.size();) {
    StripeHeader header;
    std::memcpy(&header, come.data() + at, sizeof header);
    ASSERT_TRUE(header.is_valid());
    end = header.position + header.size;
    arrivals.add({header.position, end});
    at += sizeof header + header.size;
  }
  const std::uint64_t missing = arrivals.whole();
  EXPECT_GT(end, missing + ring / 2) << "the quick connection goes on";
  EXPECT_LE(end, missing + ring - (64 << 10));
}

TEST(ShmSegment, TakesNoOtherMemory) {
  EXPECT_FALSE(ShmSegment::open(-1));
  EXPECT_FALSE(ShmSegment::open(open("/etc/passwd", O_RDONLY)));
  const int unsealed = memfd_create("test", MFD_ALLOW_SEALING);
  const auto segment = ShmSegment::create(1 << 16);
  std::vector<char> bytes(4096 + (2 << 16));
  EXPECT_EQ(pread(segment->descriptor(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(pwrite(unsealed, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_FALSE(ShmSegment::open(unsealed)) << "its owner could take it away while it is mapped";
  EXPECT_LT(ftruncate(segment->descriptor(), 4096), 0);
}

TEST(MirroredMemory, HasNoSeam) {
  const auto memory = MirroredMemory::allocate(4096);
  memory->data()[4095 + 1] = std::byte{7};
  EXPECT_EQ(memory->data()[0], std::byte{7});
}

}  // namespace
}  // namespace netfold::link
