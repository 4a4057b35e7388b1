#include "rings.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "netfold_nic.h"
#include "software_ring.h"

namespace netfold::rtl {
namespace {

constexpr numbers::BfpShape kShape{NETFOLD_RTL_BLOCK, NETFOLD_RTL_MANTISSA};
constexpr std::uint64_t kCyclesPerBeatMax = 2000;  // a slower ring counts as stopped

struct Counter {
  const char* name;
  std::uint32_t offset;
};
constexpr Counter kCounters[] = {
    {"frames_sent", NETFOLD_NIC_FRAMES_SENT},     {"frames_resent", NETFOLD_NIC_FRAMES_RESENT},
    {"acks_sent", NETFOLD_NIC_ACKS_SENT},         {"link_timeouts", NETFOLD_NIC_LINK_TIMEOUTS},
    {"cycles_paused", NETFOLD_NIC_CYCLES_PAUSED}, {"drops_crc", NETFOLD_NIC_DROPS_CRC},
    {"drops_foreign", NETFOLD_NIC_DROPS_FOREIGN}, {"drops_length", NETFOLD_NIC_DROPS_LENGTH},
    {"drops_gap", NETFOLD_NIC_DROPS_GAP},         {"drops_duplicate", NETFOLD_NIC_DROPS_DUPLICATE},
    {"drops_full", NETFOLD_NIC_DROPS_FULL},       {"beats_folded", NETFOLD_NIC_BEATS_FOLDED}};

// Gradients: normally distributed numbers of very different sizes, some zeros and subnormals, rarely an infinity or
// NaN.
std::vector<float> gradients(Prng& prng, std::uint32_t count) {
  std::vector<float> values(count);
  for (auto& value : values) {
    const auto kind = prng.below(1000);
    auto bits = static_cast<std::uint32_t>(prng.next());
    if (kind > 0) bits = (bits & 0x807fffffu) | static_cast<std::uint32_t>(100 + prng.below(30)) << 23;
    if (kind > 980) bits &= 0x807fffffu;
    if (kind > 990) bits = 0;
    value = std::bit_cast<float>(bits);
  }
  return values;
}

struct Tensor {
  std::vector<std::vector<float>> in, out;  // by rank
};

Tensor make_tensor(Prng& prng, unsigned world, std::uint32_t count) {
  Tensor tensor;
  for (unsigned rank = 0; rank < world; ++rank) {
    tensor.in.push_back(gradients(prng, count));
    tensor.out.emplace_back(count, 12345.0f);
  }
  return tensor;
}

nlohmann::json counters_of(std::vector<Device>& devices) {
  nlohmann::json counters;
  for (const Counter& counter : kCounters) {
    std::uint64_t sum = 0;
    for (Device& device : devices) sum += device.read(counter.offset).value();
    counters[counter.name] = sum;
  }
  return counters;
}

}  // namespace

RingResult run_ring(const RingRun& run) {
  Prng prng(run.seed);
  std::vector<Tensor> tensors;
  std::uint64_t elements = 0;
  for (const std::uint32_t count : run.counts) {
    tensors.push_back(make_tensor(prng, run.world, count));
    elements += count;
  }
  std::vector<Device> devices;
  for (unsigned rank = 0; rank < run.world; ++rank) {
    devices.emplace_back(DeviceOptions{.stall = run.host_stall, .seed = prng.next()});
  }
  std::vector<group::NicDriver> drivers(devices.begin(), devices.end());
  for (unsigned rank = 0; rank < run.world; ++rank) {
    auto place = place_in_ring(rank, run.world);
    place.bfp = run.bfp;
    place.link_timeout = 3000;
    expect_done(drivers[rank].join(place));
  }
  Ethernet ethernet(devices, run.ethernet);
  RingResult result;
  std::vector<std::size_t> posted(run.world, 0), ended(run.world, 0);
  const std::uint64_t cycles_max = 200000 + kCyclesPerBeatMax * run.world * (elements / kLanes + tensors.size() * 16);
  const auto is_done = [&] { return std::ranges::all_of(ended, [&](std::size_t n) { return n == tensors.size(); }); };
  while (!is_done()) {
    for (unsigned rank = 0; rank < run.world; ++rank) {
      for (; posted[rank] < tensors.size() && posted[rank] < ended[rank] + 16; ++posted[rank]) {
        Tensor& tensor = tensors[posted[rank]];
        drivers[rank]
            .post(address_of(tensor.in[rank]), address_of(tensor.out[rank]), run.counts[posted[rank]],
                  static_cast<std::uint16_t>(posted[rank]))
            .value();
      }
      while (const auto one = next_end(devices[rank], drivers[rank])) {
        if (one->status != NETFOLD_NIC_DONE || one->tag != ended[rank]) ++result.failed;
        ++ended[rank];
      }
    }
    ethernet.step();
    if (ethernet.cycles() > cycles_max) throw std::runtime_error("a ring has stopped");
  }
  result.cycles = ethernet.cycles();
  for (const Tensor& tensor : tensors) {
    const std::vector<float> expected = software_ring(tensor.in, run.bfp, kShape);
    for (const auto& out : tensor.out) result.differences += differences(expected.data(), out.data(), out.size());
  }
  result.counters = counters_of(devices);
  return result;
}

nlohmann::json run_rings(unsigned runs, unsigned world_max, std::uint32_t count_max, double loss, std::uint64_t seed) {
  Prng prng(seed);
  std::uint64_t differences = 0, failed = 0, cycles = 0, requests = 0, bfp_runs = 0;
  nlohmann::json sums = nlohmann::json::object(), worlds = nlohmann::json::object();
  for (unsigned i = 0; i < runs; ++i) {
    RingRun run;
    run.world = 2 + static_cast<unsigned>(prng.below(world_max - 1));
    run.bfp = prng.chance(0.5);
    run.counts.clear();
    // Mostly small: less than a block per rank, about one block, a few chunks; also zero.
    for (std::uint64_t left = 1 + prng.below(4); left > 0; --left) {
      const std::uint64_t most = std::uint64_t{1} << prng.below(std::bit_width(count_max) + 1u);
      run.counts.push_back(static_cast<std::uint32_t>(prng.below(std::min<std::uint64_t>(most, count_max) + 1)));
    }
    run.ethernet.seed = prng.next();
    run.seed = prng.next();
    run.host_stall = prng.chance(0.3) ? 0.3 * prng.unit() : 0;
    run.ethernet.latency = static_cast<unsigned>(prng.below(200));
    if (prng.chance(0.5)) run.ethernet.bytes_per_cycle = (0.1 + 0.9 * prng.unit()) * static_cast<double>(kBeatBytes);
    if (prng.chance(0.8)) run.ethernet.loss = loss * prng.unit();
    if (prng.chance(0.3)) run.ethernet.damage = loss * prng.unit();
    if (prng.chance(0.3)) run.ethernet.duplicate = loss * prng.unit();
    if (prng.chance(0.3)) run.ethernet.reorder = loss * prng.unit();
    const RingResult result = run_ring(run);
    differences += result.differences;
    failed += result.failed;
    cycles += result.cycles;
    requests += run.counts.size();
    bfp_runs += run.bfp ? 1 : 0;
    const std::string world = std::to_string(run.world);
    worlds[world] = worlds.value(world, 0) + 1;
    for (const auto& [name, count] : result.counters.items()) {
      sums[name] = sums.value(name, std::uint64_t{0}) + count.get<std::uint64_t>();
    }
  }
  return {{"runs", runs},     {"requests", requests}, {"bfp_runs", bfp_runs}, {"differences", differences},
          {"failed", failed}, {"cycles", cycles},     {"worlds", worlds},     {"counters", sums}};
}

}  // namespace netfold::rtl
