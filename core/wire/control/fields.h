// Reads the fields of one JSON object and remembers the first thing that is wrong with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/hex.h"

namespace netfold::control {

class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  const std::optional<std::string>& problem() const { return problem_; }
  bool has(const char* name) const { return object_.contains(name); }

  template <class T>
  T integer(const char* name, std::int64_t least, std::int64_t most) {
    const auto* value = find(name);
    const auto number = value ? as_integer(*value) : std::nullopt;
    if (number && *number >= least && *number <= most) return static_cast<T>(*number);
    return complain<T>(name, fmt::format("must be an integer from {} to {}", least, most));
  }

  double real(const char* name, double least, double most) {
    const auto* value = find(name);
    if (value && value->is_number()) {
      const double number = value->get<double>();
      if (std::isfinite(number) && number >= least && number <= most) return number;
    }
    return complain<double>(name, fmt::format("must be a number from {} to {}", least, most));
  }

  bool boolean(const char* name) {
    const auto* value = find(name);
    if (value && value->is_boolean()) return value->get<bool>();
    return complain<bool>(name, "must be true or false");
  }

  std::string text(const char* name, std::size_t bytes_max) {
    const auto* value = find(name);
    if (value && value->is_string() && value->get_ref<const std::string&>().size() <= bytes_max) {
      return value->get<std::string>();
    }
    return complain<std::string>(name, fmt::format("must be a text of at most {} bytes", bytes_max));
  }

  std::vector<std::string> texts(const char* name, std::size_t count_max, std::size_t bytes_max) {
    const auto* value = find(name);
    const auto is_text = [&](const nlohmann::json& each) {
      return each.is_string() && each.get_ref<const std::string&>().size() <= bytes_max;
    };
    if (value && value->is_array() && value->size() <= count_max && std::ranges::all_of(*value, is_text)) {
      return value->get<std::vector<std::string>>();
    }
    return complain<std::vector<std::string>>(
        name, fmt::format("must be a list of at most {} texts of at most {} bytes", count_max, bytes_max));
  }

  template <class Bytes>
  Bytes hex(const char* name) {
    const auto* value = find(name);
    Bytes bytes = {};
    if (value && value->is_string() && from_hex(value->get_ref<const std::string&>(), bytes)) return bytes;
    return complain<Bytes>(name, fmt::format("must be {} hex digits", 2 * bytes.size()));
  }

  template <class Bytes>
  std::optional<Bytes> optional_hex(const char* name) {
    if (!has(name)) return std::nullopt;
    return hex<Bytes>(name);
  }

  std::vector<std::uint16_t> integers(const char* name, std::int64_t least, std::int64_t most, std::size_t count_max) {
    const auto* value = find(name);
    std::vector<std::uint16_t> numbers;
    const auto wrong = [&] {
      return complain<std::vector<std::uint16_t>>(
          name, fmt::format("must be a list of at most {} integers from {} to {}", count_max, least, most));
    };
    if (!value || !value->is_array() || value->size() > count_max) return wrong();
    for (const auto& item : *value) {
      const auto number = as_integer(item);
      if (!number || *number < least || *number > most) return wrong();
      numbers.push_back(static_cast<std::uint16_t>(*number));
    }
    return numbers;
  }

  template <class Bytes>
  std::vector<Bytes> hexes(const char* name, std::size_t count_max) {
    const auto* value = find(name);
    std::vector<Bytes> all;
    const auto wrong = [&] {
      return complain<std::vector<Bytes>>(
          name, fmt::format("must be a list of at most {} texts of {} hex digits", count_max, 2 * Bytes{}.size()));
    };
    if (!value || !value->is_array() || value->size() > count_max) return wrong();
    for (const auto& item : *value) {
      Bytes bytes = {};
      if (!item.is_string() || !from_hex(item.get_ref<const std::string&>(), bytes)) return wrong();
      all.push_back(bytes);
    }
    return all;
  }

  template <class T>
  T complain(const char* name, const std::string& what) {
    if (!problem_) problem_ = fmt::format("field '{}' {}", name, what);
    return T{};
  }

 private:
  const nlohmann::json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  static std::optional<std::int64_t> as_integer(const nlohmann::json& value) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(number);
    }
    if (value.is_number_integer()) return value.get<std::int64_t>();
    return std::nullopt;
  }

  const nlohmann::json& object_;
  std::optional<std::string> problem_;
};

}  // namespace netfold::control
