#include "testing/plain_fold.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "numbers/codec.h"

namespace netfold::testing {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

std::vector<std::byte> plain_all_reduce(const std::vector<std::vector<std::byte>>& inputs, numbers::ElementType type,
                                        numbers::WireFormat wire, std::size_t count, bool average) {
  const numbers::Kernels& plain = *numbers::all_kernels().back();
  const auto divide_by = static_cast<std::uint32_t>(average ? inputs.size() : 1);
  std::vector<std::byte> encoded(numbers::encoded_bytes(wire, count)), result(count * numbers::size_bytes(type));
  if (count == 0) return result;
  if (type == numbers::ElementType::kInt32) {
    std::vector<std::vector<std::uint32_t>> values(inputs.size(), std::vector<std::uint32_t>(count));
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      std::memcpy(values[rank].data(), inputs[rank].data(), inputs[rank].size());
    }
    encoded = bytes_of(plain_fold(values, 0, values.size()));
  } else {
    std::vector<std::vector<float>> values(inputs.size(), std::vector<float>(count));
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      numbers::encode(wire, type, inputs[rank].data(), count, encoded.data(), plain);
      numbers::decode(wire, numbers::ElementType::kFp32, encoded.data(), count, values[rank].data(), 1, plain);
    }
    const std::vector<float> sum = plain_fold(values, 0, values.size());
    numbers::encode(wire, numbers::ElementType::kFp32, sum.data(), count, encoded.data(), plain);
  }
  numbers::decode(wire, type, encoded.data(), count, result.data(), divide_by, plain);
  return result;
}

std::vector<std::byte> plain_result(const group::CollectiveRequest& request, std::vector<std::vector<std::byte>> inputs,
                                    std::size_t rank) {
  const std::size_t element_bytes = numbers::size_bytes(request.type);
  const auto part_bytes = static_cast<std::ptrdiff_t>(request.count * element_bytes);
  const auto first_byte = [&](std::size_t of) {
    return static_cast<std::ptrdiff_t>(of * request.stride() * element_bytes);
  };
  if (request.collective == schedule::Collective::kAllGather) {
    std::vector<std::byte> all(static_cast<std::size_t>(first_byte(inputs.size() - 1) + part_bytes));
    for (std::size_t of = 0; of < inputs.size(); ++of) std::ranges::copy(inputs[of], all.begin() + first_byte(of));
    return all;
  }
  if (request.collective == schedule::Collective::kReduceScatter) {  // blocks begin where a part does
    for (auto& each : inputs) {
      const auto part = each.begin() + first_byte(rank);
      each = std::vector(part, part + part_bytes);
    }
  }
  return plain_all_reduce(inputs, request.type, {request.format, request.bfp}, request.count, request.average);
}

}  // namespace netfold::testing
