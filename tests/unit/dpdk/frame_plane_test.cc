// The whole data plane, its threads and DPDK's rings, queues and buffers, over ports in memory: jobs fold in both
// layouts, come and go, and leave no buffer behind.
#include "switch/ethernet/frame_plane.h"

#include <gtest/gtest.h>

#include <thread>

#include "link/dpdk/dpdk.h"
#include "switch_bench/gradients.h"

namespace netfold::switching {
namespace {

constexpr std::uint32_t kSwitchIp = 0x0a00'0001;
constexpr std::uint16_t kUdpPort = 7172, kPorts = 3;
constexpr Nanoseconds kPatience = 20 * kSecond;

apps::JobShape shape_of(std::uint16_t job, std::uint16_t threads) {
  apps::JobShape shape;
  shape.lease.world = kPorts;
  shape.lease.job = job;
  shape.lease.epoch = static_cast<std::uint16_t>(100 + job);
  shape.lease.slots = 16;
  shape.lease.shards = threads;
  shape.lease.payload_bytes = 1464;
  return shape;
}

// DPDK starts once a process, so its devices are there for all tests; each test has queue 0 of them to itself.
class Far {
 public:
  explicit Far(link::FrameDevices& devices) : devices_(devices) {}

  void offer(const apps::Gradients& job, std::uint16_t worker, std::uint32_t chunk) {
    link::Frame frame = devices_.pool().allocate();
    ASSERT_NE(frame.buffer, nullptr);
    frame.size_bytes = static_cast<std::uint32_t>(job.contribution(worker, chunk, frame.bytes));
    ASSERT_EQ(devices_.far_end(worker)->offer(0, {&frame, 1}), 1u);
  }

  // Results of `worker` until there are `count`, on whatever queue the switch's threads send.
  std::size_t results(const std::vector<apps::Gradients*>& jobs, std::uint16_t worker, std::size_t count,
                      std::uint16_t queues) {
    std::size_t right = 0;
    const Nanoseconds until = now() + kPatience;
    while (right < count && now() < until) {
      for (std::uint16_t queue = 0; queue < queues; ++queue) {
        std::array<link::OutgoingFrame, 32> frames;
        const std::size_t got = devices_.far_end(worker)->collect(queue, frames);
        for (const link::OutgoingFrame& frame : std::span(frames).first(got)) {
          for (const apps::Gradients* job : jobs) {
            right += job->read(worker, frame).kind == apps::Gradients::Kind::kResult ? 1 : 0;
          }
          devices_.pool().release(frame);
        }
      }
      std::this_thread::yield();
    }
    return right;
  }

 private:
  link::FrameDevices& devices_;
};

class FramePlaneTest : public ::testing::Test {
 protected:
  // Folds on `threads` and gives everything back; returns what the plane counted.
  static FrameStats fold_two_jobs(link::FrameDevices& devices, FramePlane& plane, std::uint16_t threads,
                                  std::uint16_t queues) {
    Far far(devices);
    std::vector<std::unique_ptr<apps::Gradients>> jobs;
    std::vector<apps::Gradients*> all;
    for (std::uint16_t id = 0; id < 2; ++id) {
      // A chunk's UDP port is its shard's: one generator a shard and job.
      for (std::uint16_t shard = 0; shard < threads; ++shard) {
        const apps::JobShape shape = shape_of(id, threads);
        apps::Ends ends = apps::made_up_ends(shape.lease, kSwitchIp, static_cast<std::uint16_t>(kUdpPort + shard));
        jobs.push_back(std::make_unique<apps::Gradients>(shape, std::move(ends), 7));
        all.push_back(jobs.back().get());
      }
      plane.admit(jobs.back()->admission());
    }
    constexpr std::uint32_t kChunks = 40;  // more than two rounds of the slots
    std::size_t got = 0;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      for (std::uint16_t worker = 0; worker < kPorts; ++worker) {
        for (std::uint16_t id = 0; id < 2; ++id) far.offer(*jobs[id * threads + chunk % threads], worker, chunk);
      }
      for (std::uint16_t worker = 0; worker < kPorts; ++worker) {
        // The jobs differ in their epochs, the shards of one do not: each result is right for `threads` generators.
        got += far.results(all, worker, 2 * threads, queues) / threads;
      }
    }
    EXPECT_EQ(got, std::size_t{kChunks} * kPorts * 2);
    EXPECT_EQ(plane.counters(0).folded_chunks, kChunks);
    EXPECT_EQ(plane.counters(1).contributions, kChunks * kPorts);
    const FrameStats stats = plane.frame_stats();
    plane.evict(0);
    plane.evict(1);
    return stats;
  }
};

std::uint64_t counter(const NamedCounters& from, const std::string& name) {
  for (const auto& [its_name, value] : from.counters) {
    if (its_name == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

// One process, one DPDK: the layouts take their turns in one test.
TEST_F(FramePlaneTest, FoldsInBothLayoutsAndLeavesNothing) {
  link::DpdkOptions dpdk;
  dpdk.devices.ports.assign(kPorts, "ring");
  dpdk.devices.threads = 2 + kPorts;
  dpdk.devices.receivers = 1;
  dpdk.devices.buffers = 4096;
  auto opened = link::open_dpdk(dpdk);
  ASSERT_TRUE(opened) << opened.error().message;
  link::FrameDevices& devices = **opened;

  // Planes own their devices; this one lends them.
  class Lent final : public link::FrameDevices {
   public:
    explicit Lent(link::FrameDevices& of) : of_(of) {}
    link::BufferPool& pool() override { return of_.pool(); }
    std::size_t ports() const override { return of_.ports(); }
    link::Port& port(link::PortNumber number, std::uint16_t thread) override { return of_.port(number, thread); }
    std::uint16_t receive_queues(link::PortNumber number) const override { return of_.receive_queues(number); }
    link::Port& inbox(std::uint16_t thread) override { return of_.inbox(thread); }
    void enter_thread() override { of_.enter_thread(); }
    void leave_thread() override { of_.leave_thread(); }
    void watch_links() override { of_.watch_links(); }

   private:
    link::FrameDevices& of_;
  };

  for (const ThreadLayout layout : {ThreadLayout::kRunToCompletion, ThreadLayout::kPerPort}) {
    for (const std::uint16_t threads : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << "layout " << static_cast<int>(layout) << ", threads " << threads);
      FramePlaneOptions options;
      options.ethernet.netfold = {.ip = kSwitchIp, .first_port = kUdpPort};
      options.ethernet.threads = threads;
      options.layout = layout;
      auto plane = start_frame_plane(options, std::make_unique<Lent>(devices), [](auto, auto, auto, auto) {});
      ASSERT_TRUE(plane) << plane.error().message;
      const FrameStats stats = fold_two_jobs(devices, **plane, threads, 2 + kPorts);
      std::uint64_t taken = 0, handed_over = 0;
      for (const NamedCounters& port : stats.ports) {
        taken += counter(port, "taken");
        handed_over += counter(port, "handed_over");
      }
      EXPECT_EQ(taken, 2u * 40 * kPorts);
      if (layout == ThreadLayout::kPerPort) {
        EXPECT_EQ(handed_over, taken) << "port threads fold nothing";
      } else if (threads == 1) {
        EXPECT_EQ(handed_over, 0u);
      }
      plane->reset();
      EXPECT_EQ(devices.pool().in_use(), 0u) << "a buffer was not given back";
    }
  }
}

TEST(Dpdk, SaysWhatIsWrongWithAPort) {
  const auto error_of = [](const std::string& port) {
    link::DpdkOptions options;
    options.devices.ports = {port};
    const auto opened = link::open_dpdk(options);
    return opened ? "opened" : opened.error().message;
  };
  EXPECT_NE(error_of("nosuch0").find("neither a PCI address"), std::string::npos);
  EXPECT_NE(error_of("ffff:ff:1f.7").find("no PCI device"), std::string::npos);
  EXPECT_NE(error_of("net_af_packet0,iface=nosuch0").find("nosuch0, which is not there"), std::string::npos);
}

}  // namespace
}  // namespace netfold::switching
