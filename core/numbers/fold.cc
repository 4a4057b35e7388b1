#include "numbers/fold.h"

#include <algorithm>
#include <cassert>

namespace netfold::numbers {

namespace {

constexpr std::size_t kTile = 1024;  // elements: a whole number of blocks of every bfp shape; 4 KiB, which stays in L1

}  // namespace

Folder::Folder(std::size_t count_max, std::size_t workers_max, const Kernels& with)
    : kernels_(&with), count_max_(count_max), workers_max_(workers_max), tile_(std::min(count_max, kTile)) {
  assert(workers_max > 0 && workers_max <= kWorkersMax);
}

void Folder::fold(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t count, std::byte* out) {
  assert(count <= count_max_ && !payloads.empty() && payloads.size() <= workers_max_);
  switch (wire.format) {
    case Format::kFp32: return kernels_->fold_fp32(payloads, 0, count, reinterpret_cast<float*>(out));
    case Format::kInt32: return kernels_->fold_int32(payloads, 0, count, reinterpret_cast<std::int32_t*>(out));
    case Format::kFp16:
    case Format::kBf16:
    case Format::kBfp: return fold_narrow(wire, payloads, count, out);
    case Format::kNone: break;
  }
  assert(false && "a fold needs a format");
}

// Formats narrower than FP32: fold a tile in FP32, then round it once to the wire.
void Folder::fold_narrow(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t count,
                         std::byte* out) {
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t tile_count = std::min(kTile, count - first);
    std::byte* tile_out = out + encoded_bytes(wire, first);
    if (wire.format == Format::kFp16) {
      kernels_->fold_fp16(payloads, first, tile_count, tile_.data());
      kernels_->fp32_to_fp16(tile_.data(), tile_count, reinterpret_cast<std::uint16_t*>(tile_out));
    } else if (wire.format == Format::kBf16) {
      kernels_->fold_bf16(payloads, first, tile_count, tile_.data());
      kernels_->fp32_to_bf16(tile_.data(), tile_count, reinterpret_cast<std::uint16_t*>(tile_out));
    } else {
      kernels_->fold_bfp(wire.bfp, payloads, first, tile_count, tile_.data());
      kernels_->bfp_encode(wire.bfp, tile_.data(), tile_count, tile_out);
    }
  }
}

}  // namespace netfold::numbers
