// Lines of the program's log, on standard error. Only log.cc includes the library that writes them: it takes seconds to
// compile.
#pragma once

#include <fmt/core.h>

#include <string>

namespace netfold::log {

enum class Level { kInfo, kWarning, kError };

// For programs, first of all: `name` of the logger. Libraries inside another program log without it.
void set_up(const std::string& name);
// "debug", "info", "warning" or "error": lines below are left out.
void set_level(const std::string& name);

// From now on each line is a JSON object: `time` (UTC), `level`, `message`, and `job` if the line is about one.
void write_json();

void line(Level level, fmt::string_view format, fmt::format_args arguments, const std::string& job = {});

template <class... T>
void info(fmt::format_string<T...> format, T&&... arguments) {
  line(Level::kInfo, format, fmt::make_format_args(arguments...));
}

template <class... T>
void warn(fmt::format_string<T...> format, T&&... arguments) {
  line(Level::kWarning, format, fmt::make_format_args(arguments...));
}

template <class... T>
void error(fmt::format_string<T...> format, T&&... arguments) {
  line(Level::kError, format, fmt::make_format_args(arguments...));
}

}  // namespace netfold::log
