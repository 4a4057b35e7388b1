// The calls from Python into every engine, wherever it runs. Calls that block let other Python threads run, and react
// to Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/fork.h"
#include "errors.h"
#include "group/group.h"

namespace netfold {

// Runs a call that may block, and raises its error.
template <class Call>
auto without_lock(Call call) {
  auto result = [&] {
    const nb::gil_scoped_release release;
    return call();
  }();
  if (result) return result;
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // a signal handler raised while we waited
  raise(result.error());
}

// Whether the ticket is done within `timeout_s`; raises its error.
template <class Waited>
bool wait_hearing_signals(Waited& engine, std::uint64_t ticket, double timeout_s) {
  const Nanoseconds deadline = std::isfinite(timeout_s) ? now() + from_seconds(timeout_s) : kNever;
  for (;;) {
    const Nanoseconds left = std::clamp(deadline - now(), Nanoseconds{0}, kSignalPeriod);
    const auto completion = [&] {
      const nb::gil_scoped_release release;
      return engine.wait(ticket, left);
    }();
    if (completion && completion->error) raise(*completion->error);
    if (completion) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (now() >= deadline) return false;
  }
}

// With the memory at these addresses.
inline group::CollectiveRequest request_for(std::uintptr_t in, std::uintptr_t out, std::size_t count,
                                            const std::string& type, const std::string& wire, bool average = false) {
  return {reinterpret_cast<const void*>(in),
          reinterpret_cast<void*>(out),
          count,
          element_type_of(type),
          format_of(wire),
          average};
}

template <class Group>
class GroupCalls {
 public:
  explicit GroupCalls(std::unique_ptr<Group> engine) : engine_(owned_by_process(std::move(engine))) {}

  Group& engine() const {
    if (is_inherited(engine_)) throw std::runtime_error(kInherited);
    return *engine_;
  }

  // Of the next request.
  void for_device(std::uintptr_t copied, std::uintptr_t over, std::uint32_t number) {
    next_words_ = {reinterpret_cast<const std::uint32_t*>(copied), reinterpret_cast<std::uint32_t*>(over), number};
  }

  std::uint64_t submit(group::CollectiveRequest request, bool is_awaited) {
    request.words = std::exchange(next_words_, {});
    const auto ticket = is_awaited ? engine().submit_awaited(request) : engine().submit(request);
    if (!ticket) raise(ticket.error());
    return *ticket;
  }

  bool wait(std::uint64_t ticket, double timeout_s) { return wait_hearing_signals(engine(), ticket, timeout_s); }

  std::optional<std::tuple<std::uint64_t, nb::object>> next_completion(double timeout_s) {
    const auto completion = [&] {
      const nb::gil_scoped_release release;
      return engine().next_completion(from_seconds(timeout_s));
    }();
    if (!completion) return std::nullopt;
    return std::tuple(completion->ticket, completion->error ? to_python(*completion->error) : nb::none());
  }

  JsonRecord stats() const {
    const auto counters = [&] {
      const nb::gil_scoped_release release;
      return engine().counters();
    }();
    return to_python(counters);
  }

  void set_timeout(double timeout_s) {
    if (!(timeout_s > 0)) throw nb::value_error("a timeout is a number of seconds, more than 0");
    if (!is_inherited(engine_)) engine_->set_timeout(from_seconds(timeout_s));
  }

  void close(const std::string& reason) {
    if (is_inherited(engine_)) return;
    std::optional<Error> error;
    if (!reason.empty()) error = Error{ErrorCode::kPeerFailed, reason};
    const nb::gil_scoped_release release;
    engine_->close(error);
  }

 private:
  ProcessOwned<Group> engine_;
  group::DeviceWords next_words_;  // Python's lock protects it
};

// A worker's calls at a switch.
template <class Bound>
void bind_all_reduce(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound.def(
      "all_reduce",
      [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
         const std::string& wire, bool average, bool awaited, int block, int mantissa, bool encoded) {
        auto request = request_for(in, out, count, type, wire, average);
        request.bfp = bfp_shape_of(block, mantissa);
        request.is_encoded = encoded;
        return self.submit(request, awaited);
      },
      "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "awaited"_a = false, "block"_a = 16,
      "mantissa"_a = 7, "encoded"_a = false,
      "Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a\n"
      "ticket at once. The memory belongs to the client until the ticket is finished. awaited: next_completion leaves\n"
      "the ticket to wait. encoded: both addresses hold whole blocks of `wire`, which is bfp of this block and "
      "mantissa.");
}

template <class Bound>
void bind_waiting(nb::class_<Bound>& bound, const char* stats_doc) {
  using namespace nb::literals;
  bound
      .def("wait", &Bound::wait, "ticket"_a, "timeout_s"_a = std::numeric_limits<double>::infinity(),
           "Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError "
           "if\n"
           "it failed.")
      .def("next_completion", &Bound::next_completion, "timeout_s"_a,
           nb::sig("def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None"),
           "The next finished (ticket, None or NetfoldError), or None after timeout_s.")
      .def("for_device", &Bound::for_device, "copied_ptr"_a, "over_ptr"_a, "number"_a,
           "A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the\n"
           "tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, "
           "or\n"
           "number + 1 if it has failed. Both words must live until then.")
      .def("stats", &Bound::stats, stats_doc)
      .def("set_timeout", &Bound::set_timeout, "timeout_s"_a,
           "How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.")
      .def("close", &Bound::close, "reason"_a = "",
           "Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.");
}

}  // namespace netfold
