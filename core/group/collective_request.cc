#include "group/collective_request.h"

#include <fmt/core.h>

#include "group/undo.h"

namespace netfold::group {

namespace {

Result<void> check_as_it_lies(const CollectiveRequest& request) {
  if (!numbers::is_defined(request.operation, request.type)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not defined on {} elements", numbers::name_of(request.operation),
                            numbers::name_of(request.type)));
  }
  if (request.average && !numbers::can_average(request.type)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements have no average", numbers::name_of(request.type)));
  }
  if (request.average && request.operation != numbers::Operation::kSum) {
    return fail(ErrorCode::kInvalidArgument, "an average is of a sum");
  }
  return {};
}

std::size_t bytes_of_all_parts(const CollectiveRequest& request, int world) {
  return request.bytes_of(request.stride() * static_cast<std::size_t>(world - 1) + request.count);
}

}  // namespace

std::size_t in_bytes(const CollectiveRequest& request, int world) {
  const bool scatters = request.collective == schedule::Collective::kReduceScatter;
  return scatters ? bytes_of_all_parts(request, world) : request.bytes_of(request.count);
}

std::size_t out_bytes(const CollectiveRequest& request, int world) {
  const bool gathers = request.collective == schedule::Collective::kAllGather;
  return gathers ? bytes_of_all_parts(request, world) : request.bytes_of(request.count);
}

bool overwrites_input(const CollectiveRequest& request, int world) {
  return overlap(request.in, in_bytes(request, world), request.out, out_bytes(request, world));
}

Result<void> check(const CollectiveRequest& request) {
  if (request.is_encoded &&
      (request.format != numbers::Format::kBfp || request.type != numbers::ElementType::kFp32 || request.average ||
       request.collective != schedule::Collective::kAllReduce || !numbers::is_valid(request.bfp))) {
    return fail(ErrorCode::kInvalidArgument, "only the sum of an all-reduce of fp32 as bfp takes encoded elements");
  }
  if (request.format == numbers::Format::kNone) {
    if (const auto valid = check_as_it_lies(request); !valid) return valid;
  } else if (request.operation != numbers::Operation::kSum) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a {} is made only of elements that travel as they lie in memory, not as {}",
                            numbers::name_of(request.operation), numbers::name_of(request.format)));
  } else if (!numbers::can_travel_as(request.type, request.format)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements cannot travel as {}: int32 travels only as int32, floating point as "
                            "fp32, fp16, bf16 or bfp",
                            numbers::name_of(request.type), numbers::name_of(request.format)));
  }
  if (request.count > 0 && (request.in == nullptr || request.out == nullptr)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} needs memory to read from and to write to", schedule::name_of(request.collective)));
  }
  return {};
}

Result<void> check_in_network(const CollectiveRequest& request, int world) {
  using schedule::Collective;
  switch (request.collective) {
    case Collective::kAllReduce: return check_all_reduce(request);
    case Collective::kBarrier: return {};
    case Collective::kReduceScatter:
      if (request.format == numbers::Format::kNone) {
        return fail(ErrorCode::kInvalidArgument, "The switch sums in a format: fp32, fp16, bf16, int32 or bfp.");
      }
      return check(request);
    case Collective::kBroadcast:
      if (request.root < 0 || request.root >= world) {
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("the root of a broadcast among {} ranks is 0 to {}, not {}", world, world - 1, request.root));
      }
      [[fallthrough]];
    case Collective::kAllGather:
      if (request.format != numbers::Format::kNone && !numbers::is_same(request.type, request.format)) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("the switch copies elements as they lie in memory: {} elements do not travel as {}",
                                numbers::name_of(request.type), numbers::name_of(request.format)));
      }
      return check(request);
    default:
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a switch does not serve {}: it serves all-reduce, reduce-scatter, all-gather, broadcast "
                              "and barrier",
                              schedule::name_of(request.collective)));
  }
}

Result<void> check_all_reduce(const CollectiveRequest& request) {
  if (request.collective != schedule::Collective::kAllReduce) {
    return fail(ErrorCode::kInvalidArgument, "The switch supports all-reduce only.");
  }
  if (request.format == numbers::Format::kNone) {
    return fail(ErrorCode::kInvalidArgument, "The switch sums in a format: fp32, fp16, bf16, int32 or bfp.");
  }
  return check(request);
}

}  // namespace netfold::group
