// Waiting for tickets of anything that has wait() and next_completion(), while other Python threads run and Ctrl-C is
// heard.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "errors.h"

namespace netfold {

template <class Engine>
void wait_for_ticket(Engine& engine, std::uint64_t ticket) {
  for (;;) {
    const auto completion = [&] {
      const nb::gil_scoped_release release;
      return engine.wait(ticket, kSignalPeriod);
    }();
    if (completion) {
      if (completion->error) raise(*completion->error);
      return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

template <class Engine>
std::optional<std::tuple<std::uint64_t, nb::object>> next_finished(Engine& engine, double timeout_s) {
  const auto completion = [&] {
    const nb::gil_scoped_release release;
    return engine.next_completion(from_seconds(timeout_s));
  }();
  if (!completion) return std::nullopt;
  return std::tuple(completion->ticket, completion->error ? to_python(*completion->error) : nb::none());
}

}  // namespace netfold
