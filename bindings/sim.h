// The common part of the simulator's binding files: errors, arrays out of vectors, names.
#pragma once

#include <nanobind/ndarray.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "errors.h"
#include "sim/routing.h"

namespace nb = nanobind;

namespace netfold::sim {

template <class T>
T value_or_raise(Result<T> result) {
  if (!result && PyErr_Occurred()) throw nb::python_error();  // a signal came, and its handler raised
  if (!result) throw nb::value_error(result.error().message.c_str());
  return std::move(*result);
}

inline void check_or_raise(Result<void> result) {
  if (!result) throw nb::value_error(result.error().message.c_str());
}

// The vector's memory becomes the array's.
template <class T>
NumpyArray as_array(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

template <class T, class List, class Get>
NumpyArray column(const List& list, Get get) {
  std::vector<T> values;
  values.reserve(list.size());
  for (const auto& each : list) values.push_back(static_cast<T>(get(each)));
  return as_array(std::move(values));
}

inline Spread spread_named(const std::string& name) {
  if (name == "hash") return Spread::kHash;
  if (name == "destination") return Spread::kDestination;
  throw nb::value_error(("'" + name + "' is not a way to spread flows: hash or destination").c_str());
}

}  // namespace netfold::sim
