// drive-nics: ranks in one process, each with the smart NIC that its argument names (its PCI address, or its socket).
// They sum tensors, compare the sums with the software's ring bit for bit, and print one JSON object. It is linked with
// no simulation: what it drives may be a board.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/prng.h"
#include "group/via_nic/nic_group.h"
#include "software_ring.h"

namespace {

using namespace netfold;

struct Options {
  std::vector<std::string> nics;
  std::vector<std::uint32_t> counts{1, 40, 1003, 70'000, 600'000};
  bool bfp = false;
  double timeout_s = 60;
  std::uint64_t seed = 1;
};

template <class T>
T or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

class Ranks {
 public:
  explicit Ranks(const Options& options) : options_(options) {
    const int world = static_cast<int>(options.nics.size());
    for (int rank = 0; rank < world; ++rank) {
      group::NicGroupOptions wanted;
      wanted.peers.rank = rank;
      wanted.peers.world = world;
      wanted.peers.timeout_s = options.timeout_s;
      wanted.nic = options.nics[static_cast<std::size_t>(rank)];
      groups_.push_back(or_throw(group::NicGroup::open(wanted)));
      addresses_.push_back(groups_.back()->address());
    }
    std::vector<std::thread> connecting;
    std::vector<std::string> errors(groups_.size());
    for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
      connecting.emplace_back([&, rank] {
        if (const auto connected = groups_[rank]->connect(addresses_); !connected) {
          errors[rank] = connected.error().message;
        }
      });
    }
    for (auto& each : connecting) each.join();
    for (const auto& error : errors) {
      if (!error.empty()) throw std::runtime_error(error);
    }
  }

  // Numbers that differ from the software's, over all ranks.
  std::uint64_t sum(std::uint32_t count, Prng& prng) {
    std::vector<std::vector<float>> in(groups_.size(), std::vector<float>(count)), out = in;
    std::vector<group::Ticket> tickets;
    for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
      for (float& each : in[rank]) each = static_cast<float>(prng.unit() - 0.5);
      group::CollectiveRequest request{in[rank].data(), out[rank].data(), count, numbers::ElementType::kFp32,
                                       options_.bfp ? numbers::Format::kBfp : numbers::Format::kFp32};
      request.algorithm.name = "ring";
      tickets.push_back(or_throw(groups_[rank]->submit(request)));
    }
    const std::vector<float> right = expected(in);
    std::uint64_t found = 0;
    for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
      const auto done = groups_[rank]->wait(tickets[rank], from_seconds(2 * options_.timeout_s));
      if (!done) throw std::runtime_error("a sum did not end");
      if (done->error) throw std::runtime_error(done->error->message);
      found += rtl::differences(right.data(), out[rank].data(), count);
    }
    return found;
  }

  nlohmann::json counters() const {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& each : groups_) all.push_back(each->counters());
    return all;
  }
  void close() {
    std::vector<std::thread> closing;
    for (auto& each : groups_) closing.emplace_back([&each] { each->close(); });
    for (auto& each : closing) each.join();
  }

 private:
  // Slice by slice, as tensors are cut.
  std::vector<float> expected(const std::vector<std::vector<float>>& in) const {
    std::vector<float> sums;
    for (std::size_t first = 0; first < in[0].size(); first += group::kSliceElements) {
      std::vector<std::vector<float>> slice;
      for (const auto& each : in) {
        const auto begin = each.begin() + static_cast<std::ptrdiff_t>(first);
        slice.emplace_back(begin,
                           begin + static_cast<std::ptrdiff_t>(std::min(group::kSliceElements, each.size() - first)));
      }
      const auto part = rtl::software_ring(slice, options_.bfp, {});
      sums.insert(sums.end(), part.begin(), part.end());
    }
    return sums;
  }

  const Options& options_;
  std::vector<std::unique_ptr<group::NicGroup>> groups_;
  std::vector<std::string> addresses_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Sums tensors through smart NICs, one a rank, and compares them with the software's ring.");
  app.add_option("nics", options.nics, "NICs by rank: PCI addresses, or sockets")->required();
  app.add_option("--counts", options.counts, "elements of each tensor")->delimiter(',');
  app.add_flag("--bfp", options.bfp);
  app.add_option("--timeout", options.timeout_s, "seconds without progress");
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  try {
    Ranks ranks(options);
    Prng prng(options.seed);
    std::uint64_t differences = 0;
    for (const std::uint32_t count : options.counts) differences += ranks.sum(count, prng);
    fmt::print("{}\n", nlohmann::json{{"differences", differences}, {"counters", ranks.counters()}}.dump());
    ranks.close();
    return differences == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "drive-nics: {}\n", error.what());
    return 1;
  }
}
