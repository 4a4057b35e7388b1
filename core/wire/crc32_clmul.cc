// CRC-32 by carry-less multiplication: four registers of 128 bits.
#include "wire/crc32.h"

#if defined(__PCLMUL__)
#include "wire/crc32_folding.h"

namespace netfold::wire {
namespace {

constexpr std::size_t kFoldBytes = 4 * kRegisterBytes;

std::uint32_t compute(std::span<const std::byte> bytes, std::uint32_t before) {
  static const Crc32& rest = *crc32_by_eight();
  if (bytes.size() < kFoldBytes) return rest.compute(bytes, before);
  __m128i x[4];
  for (std::size_t i = 0; i < 4; ++i) x[i] = load(bytes.data() + i * kRegisterBytes);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(~before)));
  for (bytes = bytes.subspan(kFoldBytes); bytes.size() >= kFoldBytes; bytes = bytes.subspan(kFoldBytes)) {
    for (std::size_t i = 0; i < 4; ++i) {
      x[i] = fold(x[i], factors<4 * 128>(), load(bytes.data() + i * kRegisterBytes));
    }
  }
  const __m128i by = factors<128>();
  return finish(fold(fold(fold(x[0], by, x[1]), by, x[2]), by, x[3]), bytes, rest);
}

bool is_supported() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

constexpr Crc32 kClmul{"clmul", is_supported, compute};

}  // namespace

const Crc32* crc32_clmul() {
  return &kClmul;
}

}  // namespace netfold::wire

#else

namespace netfold::wire {

const Crc32* crc32_clmul() {
  return nullptr;
}

}  // namespace netfold::wire

#endif
