#include "group/via_peers/plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>

namespace netfold::group {
namespace {

constexpr std::size_t kPlansMax = 256;
constexpr std::size_t kAlign = 16;  // elements: a cache line of floats; at least a bfp block

// As FNV-1a, but eight bytes at a time; equal on every machine.
class Digest {
 public:
  void add(std::string_view text) {
    add(text.size());
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), sizeof(std::uint64_t)))) {
      std::uint64_t piece = 0;
      std::memcpy(&piece, text.data(), std::min(text.size(), sizeof piece));
      add(piece);
    }
  }
  void add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x100000001b3;
    value_ ^= value_ >> 32;  // a product's high bits depend on all of it, its low ones do not
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t digest_of(const CollectiveRequest& request) {
  const schedule::Algorithm& algorithm = request.algorithm;
  Digest digest;
  digest.add(algorithm.name);
  digest.add(algorithm.between);
  for (const int number : {algorithm.sub_nodes, algorithm.switches, algorithm.group, request.root}) {
    digest.add(static_cast<std::uint64_t>(number));
  }
  digest.add(request.part_at);
  if (request.is_encoded) digest.add(std::uint64_t{1});  // ranks whose tensors lie elsewhere plan differently
  return digest.value();
}

// Requests with the same key have the same plan.
std::string key_of(const schedule::Request& wanted, bool rounds) {
  const schedule::Algorithm& algorithm = wanted.algorithm;
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", schedule::name_of(wanted.collective), wanted.root, algorithm.name,
                     algorithm.sub_nodes, algorithm.switches, algorithm.group, algorithm.between, wanted.count, rounds,
                     wanted.align);
}

// The same slices and plans serve both.
bool are_planned_alike(const CollectiveRequest& a, const CollectiveRequest& b) {
  const auto terms = [](const CollectiveRequest& request) {
    return std::tie(request.count, request.collective, request.root, request.format, request.bfp, request.algorithm);
  };
  return terms(a) == terms(b);
}

// It only copies: it runs in one piece, and takes no time to plan.
Slice exchange_slice(const CollectiveRequest& request, int world, int rank) {
  const std::size_t all = std::max<std::size_t>(request.parts->sent() + request.parts->received(), 1);
  const auto steps = schedule::exchange(request.collective, rank, request.root, *request.parts);
  return {0, all, all, std::make_shared<const Plan>(make_exchange_plan(steps, world, rank))};
}

}  // namespace

schedule::Request schedule_request(const BufferLayout& buffer, const CollectiveRequest& request, int world, int rank,
                                   const std::vector<int>& order) {
  const std::size_t block = numbers::is_narrow(request.format) ? request.bfp.block : 1;
  return {.collective = request.collective,
          .algorithm = request.algorithm,
          .world = world,
          .rank = rank,
          .count = buffer.whole(),
          // A part for every rank is cut where the ranks' memory is.
          .align = buffer.parts > 1 ? 1 : std::max(kAlign, block),
          .root = request.root,
          .order = order};
}

Terms terms_of(const CollectiveRequest& request) {
  Terms terms;
  terms.collective = request.collective;
  terms.elements = request.parts ? 0 : request.whole > 0 ? request.whole : request.count;
  terms.options = digest_of(request);
  const auto all = schedule::algorithms();
  terms.algorithm = static_cast<std::uint8_t>(
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == request.algorithm.name; }) -
      all.begin());
  terms.type = static_cast<std::uint8_t>(request.type);
  terms.format = static_cast<std::uint8_t>(request.format);
  if (request.format == numbers::Format::kBfp) {
    terms.block = request.bfp.block;
    terms.mantissa = request.bfp.mantissa;
  }
  terms.average = request.average ? 1 : 0;
  terms.operation = request.operation;
  return terms;
}

Result<std::vector<Slice>> Plans::slices_of(const CollectiveRequest& request) {
  if (request.parts) return std::vector<Slice>{exchange_slice(request, world_, rank_)};
  if (!last_slices_.empty() && are_planned_alike(request, last_)) return last_slices_;
  const bool in_turns = is_networked_ && schedule::swaps_halves(request.algorithm.name);
  const BufferLayout whole = buffer_layout_of(request.collective, request.count, world_, rank_, request.root);
  const auto parts = static_cast<std::size_t>(whole.parts);
  const std::size_t units = std::max(kSliceElements / parts / numbers::kBlockMax, std::size_t{1});
  const std::size_t most = in_turns ? std::max<std::size_t>(whole.part, 1) : units * numbers::kBlockMax;
  std::vector<Slice> slices;
  std::size_t first = 0;  // of each part
  do {
    const std::size_t part = std::min(whole.part - first, most);
    auto plan = plan_for(buffer_layout_of(request.collective, part, world_, rank_, request.root), request, in_turns);
    if (!plan) return tl::unexpected(plan.error());
    slices.push_back({first, std::max<std::size_t>(part, 1), whole.part, std::move(*plan)});
    first += part;
  } while (first < whole.part);
  last_ = request;
  last_slices_ = slices;
  return slices;
}

Result<std::shared_ptr<const Plan>> Plans::plan_for(const BufferLayout& slice, const CollectiveRequest& request,
                                                    bool in_turns) {
  const schedule::Request wanted = schedule_request(slice, request, world_, rank_, order_);
  const PlanRules rules{numbers::is_narrow(request.format), in_turns,
                        schedule::folds_in_rank_order(request.algorithm.name)};
  const std::string key = key_of(wanted, rules.rounds);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  auto steps = schedule::make(wanted);
  if (!steps) return tl::unexpected(steps.error());
  for (auto& step : *steps) {
    for (auto& transfer : step) {
      if (transfer.peer == schedule::kSwitch) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' needs a switch: here ranks fold among themselves", request.algorithm.name));
      }
      // Signals wait for each other as elements do: a token goes with them.
      if (request.collective == schedule::Collective::kBarrier) transfer.count = slice.part;
    }
  }
  if (plans_.size() >= kPlansMax) plans_.clear();
  return plans_[key] = std::make_shared<const Plan>(make_plan(*steps, world_, rank_, wanted.count, slice.out, rules));
}

}  // namespace netfold::group
