#include "errors.h"

#include <nanobind/stl/string.h>

#include "base/json.h"

namespace netfold {
namespace {

JsonRecord loaded(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text);
}

}  // namespace

JsonRecord to_python(const nlohmann::json& value) {
  return loaded(json_text(value));
}

JsonRecord to_python(const nlohmann::ordered_json& value) {
  return loaded(json_text(value));
}

}  // namespace netfold
