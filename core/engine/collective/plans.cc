#include "engine/collective/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace netfold::engine {
namespace {

constexpr std::size_t kPlansMax = 256;
constexpr std::size_t kPartUnit = 128;  // elements: whole blocks of every bfp shape
constexpr std::size_t kAlign = 16;      // elements: a cache line of floats; at least a bfp block

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

std::uint64_t digest_of(const CollectiveOptions& options) {
  Digest digest;
  digest.add(options.algorithm);
  digest.add(options.between);
  for (const int number : {options.sub_nodes, options.switches, options.group, options.root}) {
    digest.add(static_cast<std::uint64_t>(number));
  }
  digest.add(options.part_at);
  return digest.value();
}

std::string name_of_options(const CollectiveOptions& options) {
  return fmt::format("{} {} {} {} {} {} {}", schedule::name_of(options.collective), options.root, options.algorithm,
                     options.sub_nodes, options.switches, options.group, options.between);
}

}  // namespace

Terms terms_of(const AllReduce& request, const CollectiveOptions& options) {
  Terms terms;
  terms.collective = options.collective;
  terms.elements = options.whole > 0 ? options.whole : request.count;
  terms.options = digest_of(options);
  const auto all = schedule::algorithms();
  terms.algorithm = static_cast<std::uint8_t>(
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == options.algorithm; }) -
      all.begin());
  terms.type = static_cast<std::uint8_t>(request.type);
  terms.format = static_cast<std::uint8_t>(request.format);
  if (request.format == numbers::Format::kBfp) {
    terms.block = options.bfp.block;
    terms.mantissa = options.bfp.mantissa;
  }
  terms.average = request.average ? 1 : 0;
  return terms;
}

Result<std::vector<Slice>> Plans::slices_of(const AllReduce& request, const CollectiveOptions& options) {
  const bool rounds = request.format != numbers::Format::kFp32 && request.format != numbers::Format::kInt32;
  if (recent_.count == request.count && recent_.rounds == rounds && recent_.options == options &&
      !recent_.slices.empty()) {
    return recent_.slices;
  }
  const bool in_turns = is_networked_ && schedule::swaps_halves(options.algorithm);
  const Layout whole = layout_of(options.collective, request.count, world_, rank_);
  const auto parts = static_cast<std::size_t>(whole.parts);
  const std::size_t units = std::max(kSliceElements / parts / kPartUnit, std::size_t{1});
  const std::size_t most = in_turns ? std::max<std::size_t>(whole.part, 1) : units * kPartUnit;
  std::vector<Slice> slices;
  std::size_t first = 0;  // of each part
  do {
    const std::size_t part = std::min(whole.part - first, most);
    auto plan = plan_for(layout_of(options.collective, part, world_, rank_), rounds, in_turns, options);
    if (!plan) return tl::unexpected(plan.error());
    slices.push_back({first, std::max<std::size_t>(part, 1), whole.part, std::move(*plan)});
    first += part;
  } while (first < whole.part);
  recent_ = {options, request.count, rounds, slices};
  return slices;
}

Result<std::shared_ptr<const Plan>> Plans::plan_for(const Layout& slice, bool rounds, bool in_turns,
                                                    const CollectiveOptions& options) {
  schedule::Request wanted;
  wanted.collective = options.collective;
  wanted.world = world_;
  wanted.rank = rank_;
  wanted.count = slice.whole();
  // A part for every rank is cut where the ranks' memory is.
  wanted.align = slice.parts > 1 ? 1 : rounds ? std::max<std::size_t>(kAlign, options.bfp.block) : kAlign;
  wanted.root = options.root;
  wanted.sub_nodes = options.sub_nodes;
  wanted.switches = options.switches;
  wanted.order = order_;
  wanted.group = options.group;
  wanted.between = options.between;
  const std::string key = fmt::format("{} {} {} {}", name_of_options(options), wanted.count, rounds, wanted.align);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  auto steps = schedule::make(options.algorithm, wanted);
  if (!steps) return tl::unexpected(steps.error());
  for (auto& step : *steps) {
    for (auto& transfer : step) {
      if (transfer.peer == schedule::kSwitch) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' needs a switch: here ranks fold among themselves", options.algorithm));
      }
      // Signals wait for each other as elements do: a token goes with them.
      if (options.collective == schedule::Collective::kBarrier) transfer.count = slice.part;
    }
  }
  if (plans_.size() >= kPlansMax) plans_.clear();
  return plans_[key] =
             std::make_shared<const Plan>(make_plan(*steps, world_, rank_, wanted.count, slice.out, rounds, in_turns));
}

}  // namespace netfold::engine
