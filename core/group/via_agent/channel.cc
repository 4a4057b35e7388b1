#include "group/via_agent/channel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace netfold::group {
namespace {

constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 48;

template <std::size_t kSize>
void put(const std::string& text, char (&to)[kSize]) {
  text.copy(to, kSize - 1);
}

template <std::size_t kSize>
std::optional<std::string> text_of(const char (&from)[kSize]) {
  const std::size_t length = strnlen(from, kSize);
  if (length == kSize) return std::nullopt;
  return std::string(from, length);
}

bool lies_in_memory(std::uint64_t address, std::uint64_t size_bytes) {
  return size_bytes == 0 || (address != 0 && size_bytes <= std::numeric_limits<std::uint64_t>::max() - address);
}

}  // namespace

Request Request::of(std::uint64_t ticket, const CollectiveRequest& what) {
  Request request;
  request.ticket = ticket;
  request.in = reinterpret_cast<std::uintptr_t>(what.in);
  request.out = reinterpret_cast<std::uintptr_t>(what.out);
  request.count = what.count;
  request.root = what.root;
  request.sub_nodes = what.algorithm.sub_nodes;
  request.switches = what.algorithm.switches;
  request.group = what.algorithm.group;
  request.collective = static_cast<std::uint8_t>(what.collective);
  request.type = static_cast<std::uint8_t>(what.type);
  request.format = static_cast<std::uint8_t>(what.format);
  request.block = what.bfp.block;
  request.mantissa = what.bfp.mantissa;
  request.average = what.average ? 1 : 0;
  put(what.algorithm.name, request.algorithm);
  put(what.algorithm.between, request.between);
  return request;
}

Result<Order> check(const Request& request, int world, int rank) {
  const auto wrong = [](const char* what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("a worker asked its agent for a collective with {}", what));
  };
  Order order{request.ticket, request.in, request.out, {}};
  if (request.ticket == 0) return wrong("no ticket");
  if (request.collective > static_cast<std::uint8_t>(schedule::Collective::kBarrier)) return wrong("an unknown number");
  order.what.collective = static_cast<schedule::Collective>(request.collective);
  if (request.root < 0 || request.root >= world) return wrong("invalid root rank");
  order.what.root = request.root;
  if (request.type > static_cast<std::uint8_t>(numbers::ElementType::kInt32)) return wrong("an unknown element type");
  if (request.format > static_cast<std::uint8_t>(numbers::Format::kBfp)) return wrong("an unknown format");
  order.what.type = static_cast<numbers::ElementType>(request.type);
  order.what.format = static_cast<numbers::Format>(request.format);
  order.what.average = request.average != 0;
  if (order.what.average && !folds(order.what.collective)) return wrong("an average, but no sums");
  if (!numbers::can_travel_as(order.what.type, order.what.format)) return wrong("a type that its format cannot carry");
  order.what.count = request.count;
  const BufferLayout layout =
      buffer_layout_of(order.what.collective, std::min(request.count, kElementsMax), world, rank);
  if (std::max(request.count, layout.whole()) > kElementsMax) return wrong("more elements than any memory holds");
  if (!lies_in_memory(request.in, layout.in.count * order.element_bytes()) ||
      !lies_in_memory(request.out, layout.out.count * order.element_bytes())) {
    return wrong("invalid buffer address");
  }
  order.what.bfp = {request.block, request.mantissa};
  if (!numbers::is_valid(order.what.bfp)) return wrong("invalid bfp shape");
  const auto algorithm = text_of(request.algorithm), between = text_of(request.between);
  if (!algorithm || !between) return wrong("an algorithm's name that does not end");
  order.what.algorithm = {*algorithm, request.sub_nodes, request.switches, request.group, *between};
  return order;
}

void Failure::set(const Error& error) {
  code_ = static_cast<std::int32_t>(error.code);
  rank_ = error.rank;
  std::memset(message_, 0, kMessageBytes);
  error.message.copy(message_, kMessageBytes - 1);
  is_set_.store(1, std::memory_order_release);
}

std::optional<Error> Failure::get() const {
  if (is_set_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const auto code = std::clamp(code_, std::int32_t{0}, static_cast<std::int32_t>(ErrorCode::kSystem));
  return Error{static_cast<ErrorCode>(code), std::string(message_, strnlen(message_, kMessageBytes)), rank_};
}

}  // namespace netfold::group
