// How elements travel, and how many bytes they take. Wire values are little-endian; the values of Format are the
// format nibble of a packet's header (PROTOCOL.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace netfold::numbers {

enum class Format : std::uint8_t { kNone = 0, kFp32 = 1, kFp16 = 2, kBf16 = 3, kInt32 = 4, kBfp = 5 };

// bfp<block, mantissa>: `block` elements share an 8-bit exponent, each keeps a signed mantissa of `mantissa` bits and
// a sign. block is a power of two from 8 to 128, mantissa is 2 to 7.
struct BfpShape {
  std::uint8_t block = 16;
  std::uint8_t mantissa = 7;

  bool operator==(const BfpShape&) const = default;
};
constexpr std::size_t kBlockMax = 128;  // elements: a multiple of it is whole blocks of every shape

// The format of a packet's payload. `bfp` matters only where format is kBfp.
struct WireFormat {
  Format format = Format::kFp32;
  BfpShape bfp = {};
};

// The element type of a tensor in a worker's memory. The first four fold in every format that they can travel in; the
// others travel as they lie in memory (kNone), and combine.h has their arithmetic.
enum class ElementType : std::uint8_t {
  kFp32,
  kFp16,
  kBf16,
  kInt32,
  kFp64,
  kInt8,
  kInt16,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kBool,
  kComplex64,
  kComplex128,
};

bool is_valid(BfpShape shape);
std::size_t bfp_block_bytes(BfpShape shape);  // 1 + block * (mantissa + 1) / 8

std::size_t size_bytes(ElementType type);
std::size_t encoded_bytes(WireFormat wire, std::size_t count);           // a chunk's last bfp block is padded
std::size_t elements_that_fit(WireFormat wire, std::size_t room_bytes);  // whole blocks only, for bfp

const char* name_of(Format format);  // "fp32", "fp16", "bf16", "int32", "bfp"; "none" for what lies in memory
std::optional<Format> format_named(std::string_view name);
const char* name_of(ElementType type);
std::optional<ElementType> element_type_named(std::string_view name);

// Whether it is narrower than what is folded, so that elements are rounded to travel.
bool is_narrow(Format format);
// Whether elements travel as they lie in memory.
bool is_same(ElementType type, Format format);
// int32 tensors travel only as int32; floating-point tensors of up to 32 bits travel in any floating-point format.
bool can_travel_as(ElementType type, Format format);

}  // namespace netfold::numbers
