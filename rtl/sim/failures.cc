#include "failures.h"

#include <vector>

#include "ethernet.h"
#include "netfold_nic.h"
#include "software_ring.h"

namespace netfold::rtl {
namespace {

constexpr std::uint64_t kCyclesMax = 200000;
constexpr std::uint32_t kTimeout = 8;  // in 1024 cycles

struct Pair {
  std::vector<Device> devices;
  std::vector<group::NicDriver> drivers;
  std::vector<std::vector<float>> in, out;

  Pair() {
    for (int rank = 0; rank < 2; ++rank) {
      devices.emplace_back();
      in.emplace_back(5000, static_cast<float>(rank) + 0.5f);
      out.emplace_back(5000, 0.0f);
    }
    for (Device& device : devices) drivers.emplace_back(device);
    for (group::NicDriver& driver : drivers) expect_done(driver.reset());
  }
  void join(std::uint8_t epoch) {
    for (unsigned rank = 0; rank < 2; ++rank) {
      auto place = place_in_ring(rank, 2);
      place.epoch = epoch;
      place.request_timeout = kTimeout;
      expect_done(drivers[rank].join(place));
    }
  }
  void post(unsigned rank, std::uint32_t count, std::uint16_t tag) {
    drivers[rank].post(address_of(in[rank]), address_of(out[rank]), count, tag).value();
  }
  // Runs until a number of requests have ended; returns their statuses by device.
  std::vector<std::vector<unsigned>> statuses(std::size_t of_first, std::size_t of_second) {
    Ethernet ethernet(devices, {});
    std::vector<std::vector<unsigned>> found(2);
    while (ethernet.cycles() < kCyclesMax && (found[0].size() < of_first || found[1].size() < of_second)) {
      ethernet.step();
      for (unsigned rank = 0; rank < 2; ++rank) {
        while (const auto ended = next_end(devices[rank], drivers[rank])) found[rank].push_back(ended->status);
      }
    }
    return found;
  }
};

nlohmann::json judged(const char* name, const std::vector<std::vector<unsigned>>& found,
                      const std::vector<std::vector<unsigned>>& right) {
  return {{"case", name}, {"statuses", found}, {"right", found == right}};
}

}  // namespace

nlohmann::json run_failures() {
  constexpr unsigned kDone = NETFOLD_NIC_DONE, kTimedOut = NETFOLD_NIC_TIMEOUT, kMismatch = NETFOLD_NIC_MISMATCH,
                     kReset = NETFOLD_NIC_RESET, kRefused = NETFOLD_NIC_REFUSED;
  nlohmann::json cases = nlohmann::json::array();
  Pair pair;
  pair.post(0, 100, 1);
  cases.push_back(judged("not enabled", pair.statuses(1, 0), {{kRefused}, {}}));

  pair.join(1);
  pair.post(0, 5000, 2);
  pair.post(0, 5000, 3);
  cases.push_back(judged("the neighbour asks for nothing", pair.statuses(2, 0), {{kTimedOut, kTimedOut}, {}}));
  pair.post(0, 5000, 4);
  cases.push_back(judged("after a failure", pair.statuses(1, 0), {{kRefused}, {}}));

  pair.join(2);
  pair.post(0, 5000, 5);
  pair.post(1, 4000, 5);
  auto mismatched = pair.statuses(1, 1);  // one device notices first; the other one times out, or notices too
  for (auto& statuses : mismatched) {
    if (statuses == std::vector<unsigned>{kTimedOut}) statuses = {kMismatch};
  }
  cases.push_back(judged("other counts", mismatched, {{kMismatch}, {kMismatch}}));

  pair.join(3);
  pair.post(0, 5000, 6);
  Ethernet ethernet(pair.devices, {});
  for (int i = 0; i < 500; ++i) ethernet.step();
  expect_done(pair.devices[0].write(NETFOLD_NIC_CONTROL, 1u << NETFOLD_NIC_CONTROL_SOFT_RESET_SHIFT));
  cases.push_back(judged("a soft reset", pair.statuses(1, 0), {{kReset}, {}}));

  pair.join(4);
  for (unsigned rank = 0; rank < 2; ++rank) pair.post(rank, 5000, 7);
  cases.push_back(judged("and all is well again", pair.statuses(1, 1), {{kDone}, {kDone}}));
  const std::vector<float> sums = software_ring(pair.in, false, {});
  cases.back()["differences"] = differences(sums.data(), pair.out[0].data(), sums.size()) +
                                differences(sums.data(), pair.out[1].data(), sums.size());
  return cases;
}

}  // namespace netfold::rtl
