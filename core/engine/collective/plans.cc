#include "engine/collective/plans.h"

#include <fmt/format.h>

#include <algorithm>

namespace netfold::engine {
namespace {

constexpr std::size_t kPlansMax = 256;
constexpr std::size_t kSliceElements = std::size_t{1} << 19;  // 2 MiB: those of eight ranks share a cache of 16 MiB
constexpr std::size_t kAlign = 16;                            // elements: a cache line of floats; at least a bfp block

std::uint64_t digest_of(const std::string& text) {  // FNV-1a: equal on every machine
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

std::string name_of_options(const CollectiveOptions& options) {
  return fmt::format("{} {} {} {} {}", options.algorithm, options.sub_nodes, options.switches, options.group,
                     options.between);
}

}  // namespace

Terms terms_of(const AllReduce& request, const CollectiveOptions& options) {
  Terms terms;
  terms.elements = request.count;
  terms.options = digest_of(name_of_options(options));
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
  const bool in_turns = is_networked_ && schedule::swaps_halves(options.algorithm);
  const std::size_t each = in_turns ? std::max<std::size_t>(request.count, 1) : kSliceElements;
  std::vector<Slice> slices;
  do {
    const std::size_t first = slices.size() * each;
    auto plan = plan_for(std::min(request.count - first, each), rounds, in_turns, options);
    if (!plan) return tl::unexpected(plan.error());
    slices.push_back({first, std::move(*plan)});
  } while (slices.size() * each < request.count);
  return slices;
}

Result<std::shared_ptr<const Plan>> Plans::plan_for(std::size_t count, bool rounds, bool in_turns,
                                                    const CollectiveOptions& options) {
  const std::size_t align = rounds ? std::max<std::size_t>(kAlign, options.bfp.block) : kAlign;
  const std::string key = fmt::format("{} {} {} {}", name_of_options(options), count, rounds, align);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  schedule::Request wanted;
  wanted.world = world_;
  wanted.rank = rank_;
  wanted.count = count;
  wanted.align = align;
  wanted.sub_nodes = options.sub_nodes;
  wanted.switches = options.switches;
  wanted.order = order_;
  wanted.group = options.group;
  wanted.between = options.between;
  const auto steps = schedule::make(options.algorithm, wanted);
  if (!steps) return tl::unexpected(steps.error());
  for (const auto& step : *steps) {
    for (const auto& transfer : step) {
      if (transfer.peer == schedule::kSwitch) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' needs a switch: here ranks fold among themselves", options.algorithm));
      }
    }
  }
  if (plans_.size() >= kPlansMax) plans_.clear();
  return plans_[key] = std::make_shared<const Plan>(make_plan(*steps, world_, rank_, count, rounds, in_turns));
}

}  // namespace netfold::engine
