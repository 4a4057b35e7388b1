#include "numbers/fold.h"

#include <algorithm>
#include <cassert>

namespace netfold::numbers {

namespace {

constexpr std::size_t kFoldTile =
    1024;  // elements: a whole number of blocks of every bfp shape; 4 KiB, which stays in L1

}  // namespace

Folder::Folder(std::size_t count_max, std::size_t workers_max, const Kernels& with)
    : kernels_(&with), count_max_(count_max), workers_max_(workers_max), tile_(std::min(count_max, kFoldTile)) {
  assert(workers_max > 0 && workers_max <= kWorkersMax);
}

void Folder::fold(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t count, std::byte* out,
                  Unrounded unrounded) {
  assert(count <= count_max_ && !payloads.empty() && payloads.size() <= workers_max_);
  assert(wire.format != Format::kNone && "a fold needs a format");
  if (wire.format == Format::kInt32) {
    return kernels_->fold_int32(payloads, 0, count, reinterpret_cast<std::int32_t*>(out));
  }
  const WireFormat in = unrounded.in ? WireFormat{Format::kFp32, wire.bfp} : wire;
  if (unrounded.out || wire.format == Format::kFp32) return sum(in, payloads, 0, count, reinterpret_cast<float*>(out));
  // A tile in FP32, then rounded once.
  for (std::size_t first = 0; first < count; first += kFoldTile) {
    const std::size_t tile_count = std::min(kFoldTile, count - first);
    sum(in, payloads, first, tile_count, tile_.data());
    round(wire, tile_count, out + encoded_bytes(wire, first));
  }
}

void Folder::sum(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t first, std::size_t count,
                 float* out) const {
  switch (wire.format) {
    case Format::kFp32: return kernels_->fold_fp32(payloads, first, count, out);
    case Format::kFp16: return kernels_->fold_fp16(payloads, first, count, out);
    case Format::kBf16: return kernels_->fold_bf16(payloads, first, count, out);
    default: return kernels_->fold_bfp(wire.bfp, payloads, first, count, out);
  }
}

void Folder::round(WireFormat wire, std::size_t count, std::byte* out) const {
  switch (wire.format) {
    case Format::kFp16: return kernels_->fp32_to_fp16(tile_.data(), count, reinterpret_cast<std::uint16_t*>(out));
    case Format::kBf16: return kernels_->fp32_to_bf16(tile_.data(), count, reinterpret_cast<std::uint16_t*>(out));
    default: return kernels_->bfp_encode(wire.bfp, tile_.data(), count, out);
  }
}

}  // namespace netfold::numbers
