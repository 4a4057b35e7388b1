#include "group/collective_request.h"

#include <fmt/core.h>

namespace netfold::group {

Result<void> check(const CollectiveRequest& request) {
  if (!numbers::can_travel_as(request.type, request.format)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements cannot travel as {}: int32 travels only as int32, floating point as "
                            "fp32, fp16, bf16 or bfp",
                            numbers::name_of(request.type), numbers::name_of(request.format)));
  }
  if (request.count > 0 && (request.in == nullptr || request.out == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "an all-reduce needs memory to read from and to write to");
  }
  return {};
}

Result<void> check_all_reduce(const CollectiveRequest& request) {
  if (request.collective != schedule::Collective::kAllReduce) {
    return fail(ErrorCode::kInvalidArgument, "The switch supports all-reduce only.");
  }
  return check(request);
}

}  // namespace netfold::group
