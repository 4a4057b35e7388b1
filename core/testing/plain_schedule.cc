#include "testing/plain_schedule.h"

#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "group/via_peers/buffer_layout.h"
#include "group/via_peers/plans.h"
#include "numbers/codec.h"
#include "testing/plain_fold.h"

namespace netfold::testing {
namespace {

using numbers::ElementType;
using schedule::Action;
using schedule::Transfer;
using Bytes = std::vector<std::byte>;

const numbers::Kernels& plain() {
  return *numbers::all_kernels().back();
}

// T is what is folded: float, or std::uint32_t for integers that wrap.
template <class T>
class PlainRanks {
 public:
  PlainRanks(const group::CollectiveRequest& request, std::size_t world)
      : request_(request), wire_{request.format, request.bfp}, ranks_(world) {}

  std::vector<Bytes> run(const std::vector<Bytes>& inputs, const std::vector<int>& order) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) set_up(rank, inputs[rank], order);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (take_step(rank)) moves = true;
      }
    }
    std::vector<Bytes> results;
    for (Rank& rank : ranks_) {
      assert(rank.next == rank.steps.size() && "the schedule never ends");
      results.push_back(result_of(rank));
    }
    return results;
  }

 private:
  struct Rank {
    schedule::Steps steps;
    std::size_t next = 0;
    bool has_sent = false;  // in the next step
    group::BufferLayout layout;
    std::vector<T> values;
    std::vector<int> to_come;  // transfers that will still be received, by element
    std::vector<bool> is_received;
  };

  static constexpr bool kIsInt = !std::is_same_v<T, float>;
  static constexpr ElementType kFolded = kIsInt ? ElementType::kInt32 : ElementType::kFp32;

  Bytes encoded(const T* values, std::size_t count) const {
    Bytes bytes(numbers::encoded_bytes(wire_, count));
    if (count > 0) numbers::encode(wire_, kFolded, values, count, bytes.data(), plain());
    return bytes;
  }
  void decode(const Bytes& bytes, std::size_t count, T* to) const {
    if (count > 0) numbers::decode(wire_, kFolded, bytes.data(), count, to, 1, plain());
  }
  void round(T* values, std::size_t count) const { decode(encoded(values, count), count, values); }
  // Of a 16-bit tensor, or of one that is folded as it is.
  numbers::WireFormat own_format() const {
    using numbers::Format;
    switch (request_.type) {
      case ElementType::kFp16: return {Format::kFp16, {}};
      case ElementType::kBf16: return {Format::kBf16, {}};
      case ElementType::kInt32: return {Format::kInt32, {}};
      default: return {Format::kFp32, {}};
    }
  }

  void set_up(std::size_t place, const Bytes& input, const std::vector<int>& order) {
    Rank& rank = ranks_[place];
    const int world = static_cast<int>(ranks_.size()), number = static_cast<int>(place);
    rank.layout = group::buffer_layout_of(request_.collective, request_.count, world, number);
    rank.steps = *schedule::make(group::schedule_request(rank.layout, request_, world, number, order));
    rank.values.resize(rank.layout.whole());
    rank.to_come.resize(rank.layout.whole());
    rank.is_received.resize(rank.layout.whole());
    const auto [first, count] = rank.layout.in;
    if (count > 0) numbers::decode(own_format(), kFolded, input.data(), count, rank.values.data() + first, 1, plain());
    for (const auto& step : rank.steps) {
      for (const Transfer& each : step) {
        if (each.action == Action::kSend) continue;
        for (std::size_t i = each.offset; i < each.offset + each.count; ++i) ++rank.to_come[i];
      }
    }
  }

  // False if what it waits for is not there.
  bool take_step(std::size_t number) {
    Rank& rank = ranks_[number];
    if (rank.next == rank.steps.size()) return false;
    const schedule::Step& step = rank.steps[rank.next];
    if (!std::exchange(rank.has_sent, true)) send_all(number, step);
    for (const Transfer& each : step) {
      if (each.action != Action::kSend && on_the_way_[{each.peer, number}].empty()) return false;
    }
    for (const Transfer& each : step) {
      if (each.action == Action::kSend) continue;
      auto& queue = on_the_way_[{each.peer, number}];
      receive(rank, each, queue.front());
      queue.pop_front();
    }
    ++rank.next;
    rank.has_sent = false;
    return true;
  }

  void send_all(std::size_t number, const schedule::Step& step) {
    Rank& rank = ranks_[number];
    for (const Transfer& each : step) {
      if (each.action != Action::kSend) continue;
      T* const values = rank.values.data() + each.offset;
      on_the_way_[{static_cast<int>(number), static_cast<std::size_t>(each.peer)}].push_back(
          encoded(values, each.count));
      round(values, each.count);
    }
  }

  void receive(Rank& rank, const Transfer& transfer, const Bytes& bytes) {
    T* const values = rank.values.data() + transfer.offset;
    std::vector<T> came(transfer.count);
    decode(bytes, transfer.count, came.data());
    for (std::size_t i = 0; i < transfer.count; ++i) {
      values[i] = transfer.action == Action::kFold ? values[i] + came[i] : came[i];
      --rank.to_come[transfer.offset + i];
      rank.is_received[transfer.offset + i] = true;
    }
    if (transfer.action == Action::kStore) return;
    const auto is_complete = [&](std::size_t i) {
      const auto [first, count] = rank.layout.out;
      return rank.to_come[i] == 0 && i >= first && i < first + count;
    };
    each_run(transfer.offset, transfer.offset + transfer.count, is_complete, [&](std::size_t first, std::size_t count) {
      divide(rank.values.data() + first, count);
      round(rank.values.data() + first, count);
    });
  }

  void divide(T* values, std::size_t count) const {
    if (!request_.average) return;
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (kIsInt) {
        values[i] = static_cast<T>(static_cast<std::int32_t>(values[i]) / static_cast<std::int32_t>(ranks_.size()));
      } else {
        values[i] /= static_cast<T>(ranks_.size());
      }
    }
  }

  // What never came is rounded as if it had.
  Bytes result_of(Rank& rank) {
    const auto [first, count] = rank.layout.out;
    each_run(
        first, first + count, [&](std::size_t i) { return !rank.is_received[i]; },
        [&](std::size_t at, std::size_t n) { round(rank.values.data() + at, n); });
    Bytes bytes(count * numbers::size_bytes(request_.type));
    if (count > 0) numbers::encode(own_format(), kFolded, rank.values.data() + first, count, bytes.data(), plain());
    return bytes;
  }

  template <class Is, class Do>
  static void each_run(std::size_t from, std::size_t to, Is is, Do what) {
    for (std::size_t i = from; i < to;) {
      std::size_t end = i;
      while (end < to && is(end)) ++end;
      if (end > i) what(i, end - i);
      i = end + (end == i ? 1 : 0);
    }
  }

  const group::CollectiveRequest& request_;
  numbers::WireFormat wire_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, std::size_t>, std::deque<Bytes>> on_the_way_;  // (from, to)
};

// A reduce-scatter is an all-reduce of each rank's part.
std::vector<Bytes> plain_in_rank_order(const std::vector<Bytes>& inputs, const group::CollectiveRequest& request) {
  const auto sum = [&](const std::vector<Bytes>& of) {
    return plain_all_reduce(of, request.type, {request.format, request.bfp}, request.count, request.average);
  };
  if (request.collective == schedule::Collective::kAllReduce) return {inputs.size(), sum(inputs)};
  const auto part_bytes = static_cast<std::ptrdiff_t>(request.count * numbers::size_bytes(request.type));
  std::vector<Bytes> results;
  for (std::ptrdiff_t rank = 0; rank < std::ssize(inputs); ++rank) {
    std::vector<Bytes> parts;
    for (const Bytes& input : inputs) {
      parts.emplace_back(input.begin() + rank * part_bytes, input.begin() + (rank + 1) * part_bytes);
    }
    results.push_back(sum(parts));
  }
  return results;
}

}  // namespace

std::vector<Bytes> plain_collective(const std::vector<Bytes>& inputs, const group::CollectiveRequest& request,
                                    const std::vector<int>& order) {
  if (schedule::folds_in_rank_order(request.algorithm.name) && group::folds(request.collective)) {
    return plain_in_rank_order(inputs, request);
  }
  if (request.type == ElementType::kInt32) {
    return PlainRanks<std::uint32_t>(request, inputs.size()).run(inputs, order);
  }
  return PlainRanks<float>(request, inputs.size()).run(inputs, order);
}

std::vector<Bytes> plain_in_network(const std::vector<Bytes>& inputs, const group::CollectiveRequest& request) {
  switch (request.collective) {
    case schedule::Collective::kAllReduce:
    case schedule::Collective::kReduceScatter: return plain_in_rank_order(inputs, request);
    case schedule::Collective::kBroadcast: return {inputs.size(), inputs[static_cast<std::size_t>(request.root)]};
    case schedule::Collective::kAllGather: {
      Bytes all;
      for (const Bytes& each : inputs) all.insert(all.end(), each.begin(), each.end());
      return {inputs.size(), all};
    }
    default: return std::vector<Bytes>(inputs.size());
  }
}

}  // namespace netfold::testing
