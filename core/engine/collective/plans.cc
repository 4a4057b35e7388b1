#include "engine/collective/plans.h"

#include <fmt/format.h>

#include <algorithm>

namespace netfold::engine {
namespace {

constexpr std::size_t kPlansMax = 256;
constexpr std::size_t kSliceElements = std::size_t{1} << 19;  // 2 MiB: those of eight ranks share a cache of 16 MiB
constexpr std::size_t kPartUnit = 128;                        // elements: whole blocks of every bfp shape
constexpr std::size_t kAlign = 16;                            // elements: a cache line of floats; at least a bfp block

std::uint64_t digest_of(const std::string& text) {  // FNV-1a: equal on every machine
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

std::string name_of_options(const CollectiveOptions& options) {
  return fmt::format("{} {} {} {} {} {} {}", schedule::name_of(options.collective), options.root, options.algorithm,
                     options.sub_nodes, options.switches, options.group, options.between);
}

}  // namespace

Terms terms_of(const AllReduce& request, const CollectiveOptions& options) {
  Terms terms;
  terms.collective = options.collective;
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
  const Layout whole = layout_of(options.collective, request.count, world_, rank_);
  const auto parts = static_cast<std::size_t>(whole.parts);
  const std::size_t most = std::max(kSliceElements / parts / kPartUnit, std::size_t{1}) * kPartUnit;
  std::vector<Slice> slices;
  std::size_t first = 0;  // of each part
  do {
    const std::size_t part = std::min(whole.part - first, most);
    auto plan = plan_for(layout_of(options.collective, part, world_, rank_), rounds, options);
    if (!plan) return tl::unexpected(plan.error());
    slices.push_back({first, std::max<std::size_t>(part, 1), whole.part, std::move(*plan)});
    first += part;
  } while (first < whole.part);
  return slices;
}

Result<std::shared_ptr<const Plan>> Plans::plan_for(const Layout& slice, bool rounds,
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
  return plans_[key] = std::make_shared<const Plan>(make_plan(*steps, world_, rank_, wanted.count, slice.out, rounds));
}

}  // namespace netfold::engine
