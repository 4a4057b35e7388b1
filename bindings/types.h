// How results are typed in netfold/_core.pyi: nanobind knows only Python's own classes.
#pragma once

#include <nanobind/nanobind.h>

namespace netfold {

inline bool is_anything(PyObject*) {
  return true;
}

class NumpyArrayName : public nanobind::object {
  NB_OBJECT_DEFAULT(NumpyArrayName, nanobind::object, "numpy.typing.NDArray[typing.Any]", is_anything)
};

using Record = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;
using Records = nanobind::typed<nanobind::list, Record>;
using JsonRecord = nanobind::typed<nanobind::object, Record>;
using NumpyArray = nanobind::typed<nanobind::object, NumpyArrayName>;

}  // namespace netfold
