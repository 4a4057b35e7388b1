// Groups of ranks as threads of one process, over loopback or shared memory.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "group/via_peers/peer_group.h"

namespace netfold::group {

using Groups = std::vector<std::unique_ptr<PeerGroup>>;
using Tensors = std::vector<std::vector<float>>;  // by rank

inline constexpr std::array kFormats{numbers::Format::kFp32, numbers::Format::kFp16, numbers::Format::kBf16,
                                     numbers::Format::kBfp};

// A way to connect ranks, as a value of a test.
struct Links {
  const char* name;
  PeerGroupOptions options;
};

// Each group in a thread of its own, since each waits for the others.
template <class SomeGroups>
void connect_all(SomeGroups& groups, const std::vector<std::string>& addresses) {
  std::vector<std::future<Result<void>>> connecting;
  for (auto& group : groups) {
    connecting.push_back(std::async(std::launch::async, [&group, addresses] { return group->connect(addresses); }));
  }
  for (auto& each : connecting) {
    const auto connected = each.get();
    EXPECT_TRUE(connected) << connected.error().message;
  }
}

inline Groups open_all(int world, PeerGroupOptions options = {}) {
  Groups groups;
  std::vector<std::string> addresses;
  options.world = world;
  for (options.rank = 0; options.rank < world; ++options.rank) {
    auto group = PeerGroup::open(options);
    EXPECT_TRUE(group) << group.error().message;
    addresses.push_back((*group)->address());
    groups.push_back(std::move(*group));
  }
  connect_all(groups, addresses);
  return groups;
}

inline std::optional<Error> finish(PeerGroup& group, PeerGroup::Ticket ticket) {
  const auto completion = group.wait(ticket, 30 * kSecond);
  if (!completion) return Error{ErrorCode::kTimeout, "an all-reduce neither completed nor failed", kNoRank};
  return completion->error;
}

// An all-reduce in place.
inline CollectiveRequest in_place(std::vector<float>& tensor, const char* algorithm = "ring") {
  return {.in = tensor.data(), .out = tensor.data(), .count = tensor.size(), .algorithm = {.name = algorithm}};
}

// Every rank submits what `request_of` says (by rank) and waits for it; the errors by rank.
template <class RequestOf>
std::vector<std::optional<Error>> run_all(Groups& groups, RequestOf request_of) {
  std::vector<std::future<std::optional<Error>>> waiting;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const CollectiveRequest request = request_of(rank);
    waiting.push_back(std::async(std::launch::async, [&group = *groups[rank], request] {
      const auto ticket = group.submit(request);
      return ticket ? finish(group, *ticket) : std::optional<Error>(ticket.error());
    }));
  }
  std::vector<std::optional<Error>> errors;
  for (auto& each : waiting) errors.push_back(each.get());
  return errors;
}

// Every rank all-reduces its tensor, in place.
template <class T>
std::vector<std::optional<Error>> reduce_all(Groups& groups, std::vector<std::vector<T>>& tensors,
                                             CollectiveRequest request = {}) {
  return run_all(groups, [&](std::size_t rank) {
    request.in = request.out = tensors[rank].data();
    request.count = tensors[rank].size();
    return request;
  });
}

// Numbers of -1 to 1, by rank.
inline Tensors gradients(int world, std::size_t count) {
  Tensors tensors;
  for (int rank = 0; rank < world; ++rank) {
    Prng prng(static_cast<std::uint64_t>(rank) * 1000 + count);
    std::vector<float> tensor(count);
    for (float& x : tensor) x = static_cast<float>(prng.unit() * 2 - 1);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// How far a sum of so many gradients may be from the exact one.
inline double tolerance(numbers::Format format, int world) {
  using numbers::Format;
  const double step = format == Format::kFp32   ? 1e-6
                      : format == Format::kFp16 ? 1e-3
                      : format == Format::kBf16 ? 8e-3
                                                : 1.6e-2;
  return step * world * (1 + std::log2(world)) + step;
}

inline double exact_sum(const std::vector<std::vector<float>>& tensors, std::size_t i) {
  double sum = 0;
  for (const auto& tensor : tensors) sum += static_cast<double>(tensor[i]);
  return sum;
}

}  // namespace netfold::group
