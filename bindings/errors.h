// Values and errors of the core as Python knows them, signals in calls that block, and names as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "numbers/format.h"
#include "types.h"

namespace nb = nanobind;

namespace netfold {

constexpr Nanoseconds kSignalPeriod = 100 * kMillisecond;  // how long a Ctrl-C may wait for a blocking call

inline nb::object error_type() {
  return nb::module_::import_("netfold.errors").attr("NetfoldError");
}

inline nb::object to_python(const Error& error) {
  return error_type()(error.message, name_of(error.code), error.rank);
}

JsonRecord to_python(const nlohmann::json& value);
JsonRecord to_python(const nlohmann::ordered_json& value);

[[noreturn]] inline void raise(const Error& error) {
  const nb::object exception = to_python(error);
  PyErr_SetObject(error_type().ptr(), exception.ptr());
  throw nb::python_error();
}

// Called without the interpreter's lock, from time to time, by calls that block.
inline bool no_signal_came() {
  const nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() == 0;
}

inline numbers::Format format_of(const std::string& name) {
  const auto format = numbers::format_named(name);
  if (!format || *format == numbers::Format::kNone) {
    throw nb::value_error(("'" + name + "' is not a format: fp32, fp16, bf16, int32 or bfp").c_str());
  }
  return *format;
}

inline numbers::ElementType element_type_of(const std::string& name) {
  const auto type = numbers::element_type_named(name);
  if (!type) throw nb::value_error(("'" + name + "' is not an element type: fp32, fp16, bf16, int32, ...").c_str());
  return *type;
}

inline numbers::BfpShape bfp_shape_of(int block, int mantissa) {
  const numbers::BfpShape shape{static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
  if (block < 0 || block > 255 || mantissa < 0 || mantissa > 255 || !numbers::is_valid(shape)) {
    throw nb::value_error("a bfp shape has a block of 8, 16, 32, 64 or 128 and a mantissa of 2 to 7 bits");
  }
  return shape;
}

}  // namespace netfold
