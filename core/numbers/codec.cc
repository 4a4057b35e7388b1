#include "numbers/codec.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::numbers {

namespace {

constexpr std::size_t kCodecTile = 1024;  // elements: a whole number of blocks of every bfp shape

void widen(const Kernels& with, ElementType type, const void* in, std::size_t count, float* out) {
  switch (type) {
    case ElementType::kFp16: return with.fp16_to_fp32(static_cast<const std::uint16_t*>(in), count, out);
    case ElementType::kBf16: return with.bf16_to_fp32(static_cast<const std::uint16_t*>(in), count, out);
    default: break;
  }
  assert(false && "only 16-bit floats are widened");
}

void from_fp32(const Kernels& with, WireFormat wire, const float* in, std::size_t count, std::byte* out) {
  switch (wire.format) {
    case Format::kFp32: std::memcpy(out, in, count * sizeof(float)); return;
    case Format::kFp16: return with.fp32_to_fp16(in, count, reinterpret_cast<std::uint16_t*>(out));
    case Format::kBf16: return with.fp32_to_bf16(in, count, reinterpret_cast<std::uint16_t*>(out));
    case Format::kBfp: return with.bfp_encode(wire.bfp, in, count, out);
    case Format::kInt32:
    case Format::kNone: break;
  }
  assert(false && "floats travel in floating-point formats");
}

void to_fp32(const Kernels& with, WireFormat wire, const std::byte* in, std::size_t count, float* out) {
  switch (wire.format) {
    case Format::kFp32: std::memcpy(out, in, count * sizeof(float)); return;
    case Format::kFp16: return with.fp16_to_fp32(reinterpret_cast<const std::uint16_t*>(in), count, out);
    case Format::kBf16: return with.bf16_to_fp32(reinterpret_cast<const std::uint16_t*>(in), count, out);
    case Format::kBfp: return with.bfp_decode(wire.bfp, in, count, out);
    case Format::kInt32:
    case Format::kNone: break;
  }
  assert(false && "floats travel in floating-point formats");
}

void round_to(const Kernels& with, ElementType type, const float* in, std::size_t count, std::byte* out) {
  if (type == ElementType::kFp16) return with.fp32_to_fp16(in, count, reinterpret_cast<std::uint16_t*>(out));
  if (type == ElementType::kBf16) return with.fp32_to_bf16(in, count, reinterpret_cast<std::uint16_t*>(out));
  std::memcpy(out, in, count * sizeof(float));
}

void divide_int32(const std::byte* in, std::size_t count, std::uint32_t divide_by, void* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t value;
    std::memcpy(&value, in + i * sizeof value, sizeof value);
    value = static_cast<std::int32_t>(std::int64_t{value} / std::int64_t{divide_by});
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

void encode(WireFormat wire, ElementType type, const void* in, std::size_t count, std::byte* out, const Kernels& with) {
  assert(can_travel_as(type, wire.format));
  if (count == 0) return;  // then pointers may be null
  if (is_same(type, wire.format)) {
    std::memcpy(out, in, encoded_bytes(wire, count));
    return;
  }
  if (type == ElementType::kFp32) return from_fp32(with, wire, static_cast<const float*>(in), count, out);
  alignas(64) float tile[kCodecTile];
  for (std::size_t first = 0; first < count; first += kCodecTile) {
    const std::size_t tile_count = std::min(kCodecTile, count - first);
    widen(with, type, static_cast<const std::byte*>(in) + first * size_bytes(type), tile_count, tile);
    from_fp32(with, wire, tile, tile_count, out + encoded_bytes(wire, first));
  }
}

void encode_stochastic(WireFormat wire, ElementType type, const void* in, std::size_t count, RoundingSeed seed,
                       std::byte* out, const Kernels& with) {
  assert(wire.format == Format::kBfp && can_travel_as(type, wire.format));
  if (type == ElementType::kFp32) {
    return with.bfp_encode_stochastic(wire.bfp, static_cast<const float*>(in), count, seed, out);
  }
  alignas(64) float tile[kCodecTile];
  for (std::size_t first = 0; first < count; first += kCodecTile) {
    const std::size_t tile_count = std::min(kCodecTile, count - first);
    widen(with, type, static_cast<const std::byte*>(in) + first * size_bytes(type), tile_count, tile);
    const RoundingSeed here{seed.seed, seed.first_index + static_cast<std::uint32_t>(first)};
    with.bfp_encode_stochastic(wire.bfp, tile, tile_count, here, out + encoded_bytes(wire, first));
  }
}

void decode(WireFormat wire, ElementType type, const std::byte* in, std::size_t count, void* out,
            std::uint32_t divide_by, const Kernels& with) {
  assert(can_travel_as(type, wire.format) && divide_by > 0);
  if (count == 0) return;
  if (divide_by == 1 && is_same(type, wire.format)) {
    std::memcpy(out, in, encoded_bytes(wire, count));
    return;
  }
  if (type == ElementType::kInt32) return divide_int32(in, count, divide_by, out);
  if (divide_by == 1 && type == ElementType::kFp32) return to_fp32(with, wire, in, count, static_cast<float*>(out));
  alignas(64) float tile[kCodecTile];
  for (std::size_t first = 0; first < count; first += kCodecTile) {
    const std::size_t tile_count = std::min(kCodecTile, count - first);
    to_fp32(with, wire, in + encoded_bytes(wire, first), tile_count, tile);
    if (divide_by > 1) with.divide_fp32(tile, static_cast<float>(divide_by), tile_count, tile);
    round_to(with, type, tile, tile_count, static_cast<std::byte*>(out) + first * size_bytes(type));
  }
}

bool is_well_formed(WireFormat wire, const std::byte* in, std::size_t count, const Kernels& with) {
  return wire.format != Format::kBfp || with.bfp_is_well_formed(wire.bfp, in, count);
}

}  // namespace netfold::numbers
