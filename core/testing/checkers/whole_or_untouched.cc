#include "testing/checkers/whole_or_untouched.h"

#include <algorithm>

#include "group/via_peers/buffer_layout.h"
#include "testing/checkers/bits.h"

namespace netfold::testing {
namespace {

constexpr std::size_t kGuardBytes = 16;
constexpr std::byte kGuard{0xa5}, kBlank{0x5a};

bool has_guard(const std::vector<std::byte>& memory) {
  return memory.empty() ||
         std::all_of(memory.end() - kGuardBytes, memory.end(), [](std::byte b) { return b == kGuard; });
}

}  // namespace

Tensor::Tensor(const TensorPlan& plan, int rank, int world, std::uint64_t seed, std::size_t index)
    : plan_(plan), rank_(rank), world_(world), places_(places_of(plan.request)) {
  const auto& [in_at, in_bytes, out_at, out_bytes] = places_;
  const std::vector<std::byte> content =
      draw_tensor(plan.request.type, in_bytes / numbers::size_bytes(plan.request.type), seed, index);
  original_.assign(std::max(in_at + in_bytes, plan.is_in_place ? out_at + out_bytes : 0), kBlank);
  std::copy(content.begin(), content.end(), original_.begin() + static_cast<std::ptrdiff_t>(in_at));
  in_ = original_;
  in_.resize(in_.size() + kGuardBytes, kGuard);
  if (!plan.is_in_place) out_.assign(out_bytes + kGuardBytes, kGuard);
}

// In place an all-gather has its part where it belongs within the result, and a reduce-scatter has its result where
// its own part was.
Tensor::Places Tensor::places_of(const group::CollectiveRequest& request) const {
  const std::size_t size = numbers::size_bytes(request.type);
  const auto layout = group::buffer_layout_of(request.collective, request.count, world_, rank_);
  const auto &in = layout.in, &out = layout.out;
  if (!plan_.is_in_place) return {0, in.count * size, 0, out.count * size};
  const std::size_t first = std::min(in.offset, out.offset);
  return {(in.offset - first) * size, in.count * size, (out.offset - first) * size, out.count * size};
}

group::CollectiveRequest Tensor::with_memory(group::CollectiveRequest request) {
  const Places places = places_of(request);
  request.in = in_.data() + places.in_at;
  request.out = (plan_.is_in_place ? in_ : out_).data() + places.out_at;
  return request;
}

std::span<const std::byte> Tensor::result() const {
  return std::span(plan_.is_in_place ? in_ : out_).subspan(places_.out_at, places_.out_bytes);
}

void WholeOrUntouchedChecker::check(Party rank, std::size_t index, const Tensor& tensor) {
  const bool may_have_changed =
      tensor.plan_.is_in_place && tensor.state != Tensor::State::kReady && tensor.state != Tensor::State::kFailed;
  // Of an all-gather in place the other parts are no input.
  const bool gathers = tensor.plan_.request.collective == schedule::Collective::kAllGather;
  const auto at = static_cast<std::ptrdiff_t>(gathers ? tensor.places_.in_at : 0);
  const auto size = gathers ? static_cast<std::ptrdiff_t>(tensor.places_.in_bytes) : std::ssize(tensor.original_);
  const auto handed_in = tensor.original_.begin() + at;
  const bool is_untouched = std::equal(handed_in, handed_in + size, tensor.in_.begin() + at);
  if (!may_have_changed && !is_untouched) {
    history_.violate("whole_or_untouched",
                     fmt::format("what {} handed in as tensor {} has changed", History::to_string(rank), index));
  }
  if (!has_guard(tensor.in_) || !has_guard(tensor.out_)) {
    history_.violate("whole_or_untouched",
                     fmt::format("memory behind tensor {} of {} has changed", index, History::to_string(rank)));
  }
}

}  // namespace netfold::testing
