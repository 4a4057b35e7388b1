// Counters in the text form that Prometheus reads: families, and the samples of each.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace netfold::switching {

class PrometheusText {
 public:
  void family(const std::string& name, const char* type, const std::string& help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    name_ = name;
  }
  template <class Number>
  void sample(const std::string& labels, Number value) {
    text_ += fmt::format("{}{} {}\n", name_, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_, name_;
};

}  // namespace netfold::switching
