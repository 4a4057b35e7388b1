#include "numbers/format.h"

#include <array>
#include <bit>
#include <cassert>

namespace netfold::numbers {

static_assert(std::endian::native == std::endian::little, "wire values are little-endian and are copied as they are");

namespace {

template <class Value>
struct Name {
  Value value;
  const char* name;
};

constexpr std::array kFormats{Name{Format::kFp32, "fp32"}, Name{Format::kFp16, "fp16"}, Name{Format::kBf16, "bf16"},
                              Name{Format::kInt32, "int32"}, Name{Format::kBfp, "bfp"}};
constexpr std::array kElementTypes{Name{ElementType::kFp32, "fp32"},
                                   Name{ElementType::kFp16, "fp16"},
                                   Name{ElementType::kBf16, "bf16"},
                                   Name{ElementType::kInt32, "int32"},
                                   Name{ElementType::kFp64, "fp64"},
                                   Name{ElementType::kInt8, "int8"},
                                   Name{ElementType::kInt16, "int16"},
                                   Name{ElementType::kInt64, "int64"},
                                   Name{ElementType::kUint8, "uint8"},
                                   Name{ElementType::kUint16, "uint16"},
                                   Name{ElementType::kUint32, "uint32"},
                                   Name{ElementType::kUint64, "uint64"},
                                   Name{ElementType::kBool, "bool"},
                                   Name{ElementType::kComplex64, "complex64"},
                                   Name{ElementType::kComplex128, "complex128"}};

template <class Value, std::size_t n>
const char* find_name(const std::array<Name<Value>, n>& names, Value value) {
  for (const auto& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "none";
}

template <class Value, std::size_t n>
std::optional<Value> find_value(const std::array<Name<Value>, n>& names, std::string_view name) {
  for (const auto& entry : names) {
    if (name == entry.name) return entry.value;
  }
  return std::nullopt;
}

std::size_t plain_element_bytes(Format format) {
  return format == Format::kFp16 || format == Format::kBf16 ? 2 : 4;
}

}  // namespace

bool is_valid(BfpShape shape) {
  return std::has_single_bit(shape.block) && shape.block >= 8 && shape.block <= kBlockMax && shape.mantissa >= 2 &&
         shape.mantissa <= 7;
}

std::size_t bfp_block_bytes(BfpShape shape) {
  return 1 + std::size_t{shape.block} * (shape.mantissa + 1u) / 8;
}

std::size_t size_bytes(ElementType type) {
  switch (type) {
    case ElementType::kInt8:
    case ElementType::kUint8:
    case ElementType::kBool: return 1;
    case ElementType::kFp16:
    case ElementType::kBf16:
    case ElementType::kInt16:
    case ElementType::kUint16: return 2;
    case ElementType::kFp32:
    case ElementType::kInt32:
    case ElementType::kUint32: return 4;
    case ElementType::kFp64:
    case ElementType::kInt64:
    case ElementType::kUint64:
    case ElementType::kComplex64: return 8;
    case ElementType::kComplex128: return 16;
  }
  return 0;
}

std::size_t encoded_bytes(WireFormat wire, std::size_t count) {
  assert(wire.format != Format::kNone);
  if (wire.format != Format::kBfp) return count * plain_element_bytes(wire.format);
  return (count + wire.bfp.block - 1) / wire.bfp.block * bfp_block_bytes(wire.bfp);
}

std::size_t elements_that_fit(WireFormat wire, std::size_t room_bytes) {
  assert(wire.format != Format::kNone);
  if (wire.format != Format::kBfp) return room_bytes / plain_element_bytes(wire.format);
  return room_bytes / bfp_block_bytes(wire.bfp) * wire.bfp.block;
}

const char* name_of(Format format) {
  return find_name(kFormats, format);
}
std::optional<Format> format_named(std::string_view name) {
  return find_value(kFormats, name);
}
const char* name_of(ElementType type) {
  return find_name(kElementTypes, type);
}
std::optional<ElementType> element_type_named(std::string_view name) {
  return find_value(kElementTypes, name);
}

bool is_narrow(Format format) {
  return format != Format::kFp32 && format != Format::kInt32 && format != Format::kNone;
}

// Both type and format are "how floats lie in memory"; only bfp is not an element type.
bool is_same(ElementType type, Format format) {
  switch (type) {
    case ElementType::kFp32: return format == Format::kFp32;
    case ElementType::kFp16: return format == Format::kFp16;
    case ElementType::kBf16: return format == Format::kBf16;
    case ElementType::kInt32: return format == Format::kInt32;
    default: return false;  // it travels as it lies in memory
  }
  return false;
}

bool can_travel_as(ElementType type, Format format) {
  if (format == Format::kNone || type > ElementType::kInt32) return false;
  return (type == ElementType::kInt32) == (format == Format::kInt32);
}

}  // namespace netfold::numbers
