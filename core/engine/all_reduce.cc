#include "engine/all_reduce.h"

#include <fmt/format.h>

namespace netfold::engine {

Result<void> check(const AllReduce& request) {
  if (!numbers::can_travel_as(request.type, request.format)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements cannot travel as {}: int32 travels as int32 alone, floating point as "
                            "fp32, fp16, bf16 or bfp",
                            numbers::name_of(request.type), numbers::name_of(request.format)));
  }
  if (request.count > 0 && (request.in == nullptr || request.out == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "an all-reduce needs memory to read from and to write to");
  }
  return {};
}

}  // namespace netfold::engine
