#include "base/streaming.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/memory_units.h"

namespace netfold {

void streaming_copy(void* to, const void* from, std::size_t size_bytes) {
#ifdef __SSE2__
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::size_t misaligned =
      (kCacheLineBytes - reinterpret_cast<std::uintptr_t>(out) % kCacheLineBytes) % kCacheLineBytes;
  const std::size_t head = std::min(misaligned, size_bytes);
  std::memcpy(out, in, head);
  out += head, in += head, size_bytes -= head;
  for (; size_bytes >= kCacheLineBytes; size_bytes -= kCacheLineBytes, out += kCacheLineBytes, in += kCacheLineBytes) {
    const auto* const vectors = reinterpret_cast<const __m128i*>(in);
    auto* const line = reinterpret_cast<__m128i*>(out);
    const __m128i a = _mm_loadu_si128(vectors), b = _mm_loadu_si128(vectors + 1);
    const __m128i c = _mm_loadu_si128(vectors + 2), d = _mm_loadu_si128(vectors + 3);
    _mm_stream_si128(line, a), _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c), _mm_stream_si128(line + 3, d);
  }
  std::memcpy(out, in, size_bytes);
  _mm_sfence();  // what is published after this copy comes after it
#else
  std::memcpy(to, from, size_bytes);
#endif
}

}  // namespace netfold
