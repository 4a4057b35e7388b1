// Formats, the codec and the fold for Python: numpy arrays in, numpy arrays out.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "module.h"
#include "numbers/codec.h"
#include "numbers/fold.h"
#include "types.h"

namespace nb = nanobind;
using netfold::NumpyArray;
using namespace netfold::numbers;
using netfold::Buffer;
using netfold::make_buffer;
using netfold::numbers::encode;

namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kReleaseBytes = 1 << 16;  // above this the interpreter may run other threads meanwhile

// Releases the interpreter for the time of a long computation.
class Computing {
 public:
  explicit Computing(std::size_t size_bytes) {
    if (size_bytes >= kReleaseBytes) release_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> release_;
};

WireFormat wire_format(const std::string& format, int block, int mantissa) {
  const std::optional<Format> named = format_named(format);
  if (!named) throw nb::value_error(("no format is called '" + format + "': fp32, fp16, bf16, int32, bfp").c_str());
  if (*named != Format::kBfp) return {*named};
  const bool is_byte = block > 0 && block < 256 && mantissa > 0 && mantissa < 256;
  const BfpShape shape{static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
  if (!is_byte || !is_valid(shape)) {
    throw nb::value_error(
        ("bfp needs a block that is a power of two from 8 to 128 and a mantissa from 2 to 7, got block " +
         std::to_string(block) + " and mantissa " + std::to_string(mantissa))
            .c_str());
  }
  return {Format::kBfp, shape};
}

// Anything numpy understands, C-contiguous, cast to `dtype` unless that is null.
nb::object as_numpy(nb::handle value, const char* dtype) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  if (dtype == nullptr) return numpy.attr("ascontiguousarray")(value);
  return numpy.attr("ascontiguousarray")(value, nb::arg("dtype") = dtype);
}

std::string dtype_of(const nb::object& array) {
  return nb::cast<std::string>(array.attr("dtype").attr("name"));
}

// Real numbers, as float32.
Array floats_of(nb::handle value) {
  const nb::object array = as_numpy(value, nullptr);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind != "f" && kind != "i" && kind != "u") {
    throw nb::value_error(("needs an array of real numbers, got dtype " + dtype_of(array)).c_str());
  }
  return nb::cast<Array>(as_numpy(array, "float32"));
}

Array exactly(nb::handle value, const char* dtype) {
  const nb::object array = as_numpy(value, nullptr);
  if (dtype_of(array) != dtype) {
    throw nb::value_error(("needs an array of " + std::string(dtype) + ", got " + dtype_of(array)).c_str());
  }
  return nb::cast<Array>(array);
}

// A uint8 array or any object that is bytes; checked to be what `count` elements take.
Array payload_of(nb::handle data, WireFormat wire, std::size_t count) {
  nb::object array = nb::borrow(data);
  if (PyBytes_Check(data.ptr()) || PyByteArray_Check(data.ptr()) || PyMemoryView_Check(data.ptr())) {
    array = nb::module_::import_("numpy").attr("frombuffer")(data, nb::arg("dtype") = "uint8");
  }
  Array payload = exactly(array, "uint8");
  const std::size_t expected = encoded_bytes(wire, count);
  if (payload.size() != expected) {
    throw nb::value_error((std::to_string(count) + " elements of " + name_of(wire.format) + " take " +
                           std::to_string(expected) + " bytes, got " + std::to_string(payload.size()))
                              .c_str());
  }
  const auto* bytes = static_cast<const std::byte*>(payload.data());
  if (!is_well_formed(wire, bytes, count)) {
    throw nb::value_error("malformed bfp: a block's exponent is above 0 and below the mantissa's bits");
  }
  return payload;
}

NumpyArray to_numpy(Buffer buffer, nb::dlpack::dtype dtype, const std::vector<std::size_t>& shape) {
  std::byte* data = buffer.release();
  const nb::capsule owner(data, [](void* memory) noexcept { netfold::FreeBuffer()(memory); });
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dtype));
}

NumpyArray bytes_to_numpy(Buffer buffer, std::size_t size_bytes) {
  return to_numpy(std::move(buffer), nb::dtype<std::uint8_t>(), {size_bytes});
}

std::vector<std::size_t> shape_of(const Array& array) {
  return {array.shape_ptr(), array.shape_ptr() + array.ndim()};
}

NumpyArray encode_array(nb::handle x, int block, int mantissa, std::optional<std::uint64_t> seed,
                        std::uint32_t first_index) {
  const WireFormat wire = wire_format("bfp", block, mantissa);
  const Array floats = floats_of(x);
  const std::size_t size_bytes = encoded_bytes(wire, floats.size());
  Buffer out = make_buffer(size_bytes);
  {
    const Computing computing(floats.size() * sizeof(float));
    if (seed) {
      encode_stochastic(wire, ElementType::kFp32, floats.data(), floats.size(), {*seed, first_index}, out.get());
    } else {
      encode(wire, ElementType::kFp32, floats.data(), floats.size(), out.get());
    }
  }
  return bytes_to_numpy(std::move(out), size_bytes);
}

// bf16 has no numpy type: its bits travel as uint16.
nb::dlpack::dtype dtype_for(ElementType type) {
  switch (type) {
    case ElementType::kFp32: return nb::dtype<float>();
    case ElementType::kFp16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case ElementType::kBf16: return nb::dtype<std::uint16_t>();
    case ElementType::kInt32: return nb::dtype<std::int32_t>();
    default: return nb::dtype<float>();  // no other type has a codec
  }
}

ElementType element_type_of(const std::string& dtype) {
  if (dtype == "float32") return ElementType::kFp32;
  if (dtype == "float16") return ElementType::kFp16;
  if (dtype == "uint16") return ElementType::kBf16;
  if (dtype == "int32") return ElementType::kInt32;
  throw nb::value_error(
      ("no tensor travels as " + dtype + ": float32, float16, uint16 (bits of bf16) or int32").c_str());
}

void check_can_travel(ElementType type, Format format) {
  if (can_travel_as(type, format)) return;
  throw nb::value_error((std::string(name_of(type)) + " cannot travel as " + name_of(format)).c_str());
}

NumpyArray unpack(nb::handle data, std::size_t count, const std::string& format, const std::string& dtype, int block,
                  int mantissa, std::uint32_t divide_by) {
  const WireFormat wire = wire_format(format, block, mantissa);
  const std::optional<ElementType> type = element_type_named(dtype);
  if (!type) throw nb::value_error(("no element type is called '" + dtype + "': fp32, fp16, bf16, int32").c_str());
  check_can_travel(*type, wire.format);
  if (divide_by == 0) throw nb::value_error("divide_by must be 1 or more");
  const Array payload = payload_of(data, wire, count);
  Buffer out = make_buffer(count * size_bytes(*type));
  {
    const Computing computing(payload.size());
    decode(wire, *type, static_cast<const std::byte*>(payload.data()), count, out.get(), divide_by);
  }
  return to_numpy(std::move(out), dtype_for(*type), {count});
}

NumpyArray decode_array(nb::handle data, std::size_t count, int block, int mantissa) {
  return unpack(data, count, "bfp", "fp32", block, mantissa, 1);
}

NumpyArray pack(nb::handle x, const std::string& format, int block, int mantissa) {
  const WireFormat wire = wire_format(format, block, mantissa);
  const nb::object array = as_numpy(x, nullptr);
  const ElementType type = element_type_of(dtype_of(array));
  check_can_travel(type, wire.format);
  const Array values = nb::cast<Array>(array);
  const std::size_t size_bytes = encoded_bytes(wire, values.size());
  Buffer out = make_buffer(size_bytes);
  {
    const Computing computing(values.nbytes());
    encode(wire, type, values.data(), values.size(), out.get());
  }
  return bytes_to_numpy(std::move(out), size_bytes);
}

std::vector<Array> same_shape(const nb::typed<nb::sequence, nb::any>& arrays, Format format) {
  std::vector<Array> contributions;
  for (const nb::handle array : arrays) {
    contributions.push_back(format == Format::kInt32 ? exactly(array, "int32") : floats_of(array));
    if (shape_of(contributions.back()) != shape_of(contributions.front())) {
      throw nb::value_error(("all arrays need one shape; that of rank " + std::to_string(contributions.size() - 1) +
                             " differs from that of rank 0")
                                .c_str());
    }
  }
  if (contributions.empty() || contributions.size() > kWorkersMax) {
    throw nb::value_error("needs an array from each of 1 to 65536 workers");
  }
  return contributions;
}

// fp32 and int32 are folded where they lie; the other formats are encoded, folded as a switch does it, and decoded.
NumpyArray fold(const nb::typed<nb::sequence, nb::any>& arrays, const std::string& format, int block, int mantissa) {
  const WireFormat wire = wire_format(format, block, mantissa);
  const std::vector<Array> contributions = same_shape(arrays, wire.format);
  const std::size_t count = contributions.front().size();
  const std::size_t size_bytes = encoded_bytes(wire, count);
  const bool is_wide = wire.format == Format::kFp32 || wire.format == Format::kInt32;
  Buffer out = make_buffer(count * 4);
  {
    const Computing computing(count * 4 * contributions.size());
    std::vector<Buffer> encoded;
    std::vector<const std::byte*> payloads;
    for (const Array& contribution : contributions) {
      payloads.push_back(static_cast<const std::byte*>(contribution.data()));
      if (is_wide) continue;
      encoded.push_back(make_buffer(size_bytes));
      encode(wire, ElementType::kFp32, contribution.data(), count, encoded.back().get());
      payloads.back() = encoded.back().get();
    }
    Folder folder(count, contributions.size());
    if (is_wide) {
      folder.fold(wire, payloads, count, out.get());
    } else {
      const Buffer sum = make_buffer(size_bytes);
      folder.fold(wire, payloads, count, sum.get());
      decode(wire, ElementType::kFp32, sum.get(), count, out.get());
    }
  }
  const ElementType type = wire.format == Format::kInt32 ? ElementType::kInt32 : ElementType::kFp32;
  return to_numpy(std::move(out), dtype_for(type), shape_of(contributions.front()));
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernels* table : all_kernels()) {
    if (table->is_supported()) names.emplace_back(table->name);
  }
  return names;
}

}  // namespace

void bind_numbers(nb::module_& module) {
  using namespace nb::literals;
  module.def("encode", encode_array, "x"_a, "block"_a = 16, "mantissa"_a = 7, nb::kw_only(), "seed"_a = nb::none(),
             "first_index"_a = 0,
             "Block floating point bytes of an array, as uint8. With a seed, rounds stochastically: a pure function of "
             "the value, the seed and the element's index (first_index for x[0]).");
  module.def("decode", decode_array, "data"_a, "count"_a, "block"_a = 16, "mantissa"_a = 7,
             "The float32 values of block floating point bytes.");
  module.def("fold", fold, "arrays"_a, "format"_a = "fp32", "block"_a = 16, "mantissa"_a = 7,
             "The sum of arrays, one a rank, pairwise in rank order as it travels in `format`: int32 arrays for int32, "
             "else float32 arrays, encoded first where the format is narrower, and a float32 result.");
  module.def("pack", pack, "x"_a, "format"_a, "block"_a = 16, "mantissa"_a = 7,
             "An array's bytes on the wire. float32, float16, int32, or uint16 for the bits of bf16.");
  module.def("unpack", unpack, "data"_a, "count"_a, "format"_a, "dtype"_a = "fp32", "block"_a = 16, "mantissa"_a = 7,
             "divide_by"_a = 1,
             "The opposite; divide_by turns a sum into an average. bf16 comes as its bits in uint16.");
  module.def("kernel_names", kernel_names, "What this machine can run, fastest first.");
  module.def(
      "kernels_in_use", [] { return std::string(kernels().name); }, "One of them (NETFOLD_KERNELS overrides).");
}
