// One contract, every link: what is sent arrives whole, from the right address, in order. The wrappers keep it where
// they have nothing to break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/prng.h"
#include "link/fault_injector.h"
#include "link/memory.h"
#include "link/pcap_writer.h"
#include "link/socket_address.h"
#include "link/udp.h"

namespace netfold::link {
namespace {

constexpr std::uint32_t kLoopback = 0x7f000001;

std::vector<std::byte> bytes_of(std::size_t size_bytes, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

struct Received {
  Address from;
  std::vector<std::byte> bytes;
};

// All that comes until `count` datagrams are here or nothing has come for a second.
std::vector<Received> receive_all(Link& link, std::size_t count) {
  std::vector<Received> all;
  while (all.size() < count) {
    const auto batch = link.receive(1024);
    for (const Incoming& datagram : batch)
      all.push_back({datagram.from, {datagram.bytes.begin(), datagram.bytes.end()}});
    if (!batch.empty()) continue;
    pollfd descriptor{link.descriptor(), POLLIN, 0};
    if (link.descriptor() < 0 || poll(&descriptor, 1, 1000) == 0) break;
  }
  return all;
}

struct Pair {
  std::string name;
  std::unique_ptr<MemoryNetwork> network;
  std::unique_ptr<Link> a, b;
};

std::unique_ptr<Link> udp(UdpOptions options = {}) {
  if (options.bind.ip.is_any()) options.bind = {kLoopback, 0};
  auto link = open_udp(options);
  EXPECT_TRUE(link) << link.error().message;
  return std::move(*link);
}

std::vector<Pair> pairs() {
  std::vector<Pair> pairs;
  auto network = std::make_unique<MemoryNetwork>();
  auto a = network->open(1);
  auto b = network->open(2);
  pairs.push_back({"memory", std::move(network), std::move(a), std::move(b)});
  pairs.push_back({"udp", nullptr, udp(), udp()});
  pairs.push_back({"udp without offloads", nullptr, udp({.segments_max = 1, .receive_offload = false}),
                   udp({.segments_max = 1, .receive_offload = false})});
  pairs.push_back({"no faults", nullptr, inject_faults(udp(), {}, &now), inject_faults(udp(), {}, &now)});
  return pairs;
}

TEST(Links, DeliverDatagramsOfAnySizeInOrder) {
  for (Pair& pair : pairs()) {
    SCOPED_TRACE(pair.name);
    // Equal sizes, a shorter one, a longer one, pieces of every kind: all that segmentation must get right.
    std::vector<std::vector<std::byte>> datagrams;
    for (const std::size_t size : {1456, 1456, 1456, 700, 1456, 16, 16, 16, 9000, 1, 1456, 1457}) {
      datagrams.push_back(bytes_of(size, datagrams.size() + 1));
    }
    for (int i = 0; i < 200; ++i) datagrams.push_back(bytes_of(1472, static_cast<std::uint64_t>(1000 + i)));
    std::vector<Outgoing> batch;
    for (const auto& datagram : datagrams) {
      const std::span<const std::byte> all(datagram);
      const std::size_t head = std::min<std::size_t>(16, all.size());
      const std::size_t tail = std::min<std::size_t>(16, all.size() - head);
      batch.push_back(
          {pair.b->local_address(), all.first(head), all.subspan(head, all.size() - head - tail), all.last(tail)});
    }
    ASSERT_EQ(pair.a->send(batch), batch.size());
    const auto received = receive_all(*pair.b, datagrams.size());
    ASSERT_EQ(received.size(), datagrams.size());
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
      ASSERT_EQ(received[i].bytes, datagrams[i]) << "datagram " << i;
      ASSERT_EQ(received[i].from, pair.a->local_address());
    }
    EXPECT_EQ(pair.a->stats().sent_packets, datagrams.size());
    EXPECT_EQ(pair.b->stats().received_packets, datagrams.size());
    EXPECT_EQ(pair.a->stats().sent_bytes, pair.b->stats().received_bytes);
  }
}

TEST(Links, SendToSeveralAddressesInOneBatch) {
  auto a = udp(), b = udp(), c = udp();
  const auto bytes = bytes_of(100, 1);
  std::vector<Outgoing> batch;
  for (int i = 0; i < 30; ++i) batch.push_back({(i % 3 == 0 ? c : b)->local_address(), bytes, {}, {}});
  ASSERT_EQ(a->send(batch), 30u);
  EXPECT_EQ(receive_all(*b, 20).size(), 20u);
  EXPECT_EQ(receive_all(*c, 10).size(), 10u);
}

TEST(Udp, CrossesTheKernelInFewCallsWithSegmentation) {
  auto a = udp(), b = udp();
  const auto bytes = bytes_of(1472, 1);
  const std::vector<Outgoing> batch(512, {b->local_address(), bytes, {}, {}});
  ASSERT_EQ(a->send(batch), batch.size());
  EXPECT_LE(a->stats().system_calls, 2u);
  EXPECT_EQ(receive_all(*b, 512).size(), 512u);
}

TEST(Udp, SaysWhatIsWrongWithAnAddress) {
  auto taken = udp();
  const auto again = open_udp({.bind = taken->local_address()});
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, ::testing::HasSubstr(to_string(taken->local_address())));
}

TEST(Udp, CountsWhatTheKernelRefusesForGood) {
  auto a = udp();
  const std::vector<std::byte> too_long(70'000);
  const Outgoing datagram{{kLoopback, 9}, too_long, {}, {}};
  EXPECT_EQ(a->send(std::span(&datagram, 1)), 1u);
  EXPECT_EQ(a->stats().send_errors, 1u);
}

// As the default of `netfold switch`: one socket for both kinds, which names an IPv4 sender by its IPv4 address.
TEST(Udp, ServesBothKindsAtAllAddresses) {
  if (all_addresses().is_v4()) GTEST_SKIP() << "this kernel has no IPv6";
  auto both = open_udp({.bind = {all_addresses(), 0}});
  ASSERT_TRUE(both) << both.error().message;
  const std::uint16_t port = (*both)->local_address().port;
  const auto loopback6 = parse_address("[::1]:0");
  ASSERT_TRUE(loopback6);
  for (const IpAddress ip : {IpAddress(kLoopback), loopback6->ip}) {
    auto other = udp({.bind = {ip, 0}});
    const auto question = bytes_of(1400, 1), answer = bytes_of(1300, 2);
    const std::vector<Outgoing> asked(20, {{ip, port}, question, {}, {}});
    ASSERT_EQ(other->send(asked), asked.size());
    const auto heard = receive_all(**both, asked.size());
    ASSERT_EQ(heard.size(), asked.size());
    EXPECT_EQ(heard.back().from, other->local_address());
    EXPECT_EQ(heard.back().bytes, question);
    const std::vector<Outgoing> answered(20, {heard[0].from, answer, {}, {}});
    ASSERT_EQ((*both)->send(answered), answered.size());
    const auto came = receive_all(*other, answered.size());
    ASSERT_EQ(came.size(), answered.size());
    EXPECT_EQ(came.back().from, (Address{ip, port}));
    EXPECT_EQ(came.back().bytes, answer);
  }
}

TEST(Address, IsReadAndPrinted) {
  const auto address = parse_address("127.0.0.1:7171");
  ASSERT_TRUE(address);
  EXPECT_EQ(to_string(*address), "127.0.0.1:7171");
  EXPECT_TRUE(parse_address("localhost:1"));
  const auto v6 = parse_address("[FD00:0::1]:7171");
  ASSERT_TRUE(v6) << v6.error().message;
  EXPECT_FALSE(v6->ip.is_v4());
  EXPECT_EQ(to_string(*v6), "[fd00::1]:7171");
  EXPECT_EQ(v6->ip.header_bytes(), 40u);
  EXPECT_EQ(to_string(parse_address("[::ffff:10.0.0.1]:1").value()), "10.0.0.1:1") << "IPv4, said in another way";
  for (const char* const wrong : {"", "7171", ":7171", "localhost", "localhost:", "localhost:x", "localhost:65536",
                                  "localhost:-1", "fd00::1", "fd00::1:7171", "[fd00::1]", "[]:7171", "[10.0.0.1]:1"}) {
    const auto error = parse_address(wrong);
    ASSERT_FALSE(error) << wrong;
    EXPECT_EQ(error.error().code, ErrorCode::kInvalidArgument);
  }
}

// Sends `count` numbered datagrams through faults in virtual time and returns how often each arrived, in order.
std::vector<std::uint32_t> through_faults(const Faults& faults, std::uint32_t count) {
  MemoryNetwork network;
  Nanoseconds time = kSecond;
  auto a = inject_faults(network.open(1), faults, [&] { return time; });
  auto b = network.open(2);
  std::vector<std::uint32_t> arrived;
  const auto take = [&] {
    for (const Incoming& datagram : b->receive(10'000)) {
      std::memcpy(&arrived.emplace_back(), datagram.bytes.data(), 4);
    }
  };
  for (std::uint32_t i = 0; i < count; ++i, time += 10 * kMicrosecond) {
    const Outgoing datagram{{0, 2}, std::as_bytes(std::span(&i, 1)), {}, {}};
    a->send(std::span(&datagram, 1));
    take();
  }
  while (a->deadline() != kNever) {
    time = a->deadline();
    a->receive(1);
    take();
  }
  return arrived;
}

TEST(FaultInjector, BreaksAsOftenAsAskedAndRepeatsBySeed) {
  const Faults faults{.loss = 0.1, .duplicate = 0.05, .reorder = 0.2, .hold_max = kMillisecond, .seed = 3};
  constexpr std::uint32_t kCount = 20'000;
  const auto arrived = through_faults(faults, kCount);
  EXPECT_EQ(arrived, through_faults(faults, kCount));
  std::map<std::uint32_t, int> times;
  for (const auto number : arrived) ++times[number];
  const auto twice = std::count_if(times.begin(), times.end(), [](const auto& entry) { return entry.second == 2; });
  std::size_t out_of_order = 0;
  for (std::size_t i = 1; i < arrived.size(); ++i) out_of_order += arrived[i] < arrived[i - 1];
  EXPECT_NEAR(static_cast<double>(kCount - times.size()) / kCount, 0.1, 0.01);
  EXPECT_NEAR(static_cast<double>(twice) / kCount, 0.05, 0.01);
  EXPECT_GT(out_of_order, kCount / 10);
  Faults other = faults;
  other.seed = 4;
  EXPECT_NE(arrived, through_faults(other, kCount));
}

TEST(FaultInjector, IsDescribedInWords) {
  const auto faults = parse_faults("loss=0.01,duplicate=0.02,reorder=0.05,hold_s=0.002,seed=7");
  ASSERT_TRUE(faults);
  EXPECT_EQ(faults->loss, 0.01);
  EXPECT_EQ(faults->duplicate, 0.02);
  EXPECT_EQ(faults->reorder, 0.05);
  EXPECT_EQ(faults->hold_max, 2 * kMillisecond);
  EXPECT_EQ(faults->seed, 7u);
  for (const char* const wrong :
       {"loss", "loss=", "loss=x", "loss=1", "loss=-0.1", "lost=0.1", "loss=0.6,reorder=0.6"}) {
    EXPECT_FALSE(parse_faults(wrong)) << wrong;
  }
}

TEST(PcapWriter, WritesWhatPasses) {
  const auto path = std::filesystem::temp_directory_path() / ("netfold_test_" + std::to_string(getpid()) + ".pcap");
  {
    auto b = udp();
    auto a = capture(udp(), path, {kLoopback, 0});
    ASSERT_TRUE(a);
    const auto bytes = bytes_of(100, 1);
    const Outgoing datagram{b->local_address(), std::span(bytes).first(16), std::span(bytes).subspan(16), {}};
    ASSERT_EQ((*a)->send(std::span(&datagram, 1)), 1u);
    ASSERT_EQ(receive_all(*b, 1).size(), 1u);
    const Outgoing answer{(*a)->local_address(), bytes, {}, {}};
    b->send(std::span(&answer, 1));
    ASSERT_EQ(receive_all(**a, 1).size(), 1u);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(path);
  // File header, then two records of a header, 28 bytes of IP and UDP, and the datagram.
  EXPECT_EQ(content.size(), 24u + 2 * (16 + 28 + 100));
  EXPECT_FALSE(capture(udp(), "/nowhere/at/all.pcap", {}));
}

}  // namespace
}  // namespace netfold::link
