// The Verilated switch between interfaces, for Python: it has the methods of netfold._core.FrameSwitch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "switch/interface_switch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace netfold {
namespace {

std::uint32_t bits_of(const std::vector<unsigned>& ports, std::size_t interfaces) {
  std::uint32_t bits = 0;
  for (const unsigned port : ports) {
    if (port >= interfaces) throw nb::value_error("a port that folds needs an interface");
    bits |= 1u << port;
  }
  return bits != 0 ? bits : (1u << interfaces) - 1;
}

class PyHardwareSwitch {
 public:
  PyHardwareSwitch(const std::vector<std::string>& interfaces, const std::vector<unsigned>& ports, bool is_float)
      : interfaces_(interfaces.size()) {
    if (interfaces.empty()) throw nb::value_error("a switch needs at least two ports");
    auto opened = rtl::InterfaceSwitch::open(interfaces, is_float, bits_of(ports, interfaces_));
    if (!opened) throw std::runtime_error(opened.error().message);
    switch_ = std::move(*opened);
  }
  void configure(const std::vector<unsigned>& ports, bool is_float) {
    const std::uint32_t bits = bits_of(ports, interfaces_);
    const nb::gil_scoped_release release;
    running().configure(is_float, bits);
  }
  nb::dict counts() {
    std::vector<std::pair<std::string, double>> all;
    {
      const nb::gil_scoped_release release;
      all = running().counts();
    }
    nb::dict result;
    for (const auto& [name, count] : all) result[name.c_str()] = count;
    return result;
  }
  void close() {
    const nb::gil_scoped_release release;
    switch_.reset();
  }

 private:
  rtl::InterfaceSwitch& running() {
    if (!switch_) throw std::runtime_error("the switch is closed");
    return *switch_;
  }

  std::size_t interfaces_;
  std::unique_ptr<rtl::InterfaceSwitch> switch_;
};

}  // namespace
}  // namespace netfold

NB_MODULE(_rtl_switch, module) {
  using netfold::PyHardwareSwitch;
  module.attr("ports") = NETFOLD_RTL_PORTS;
  nb::class_<PyHardwareSwitch>(module, "FrameSwitch",
                               "The Verilated hardware switch between interfaces of this machine; needs CAP_NET_RAW.")
      .def(nb::init<const std::vector<std::string>&, const std::vector<unsigned>&, bool>(), "interfaces"_a,
           nb::kw_only(), "ports"_a = std::vector<unsigned>{}, "is_float"_a = true,
           "Port numbers are positions in `interfaces`; the ports in `ports` fold (empty: all). Raises RuntimeError.")
      .def("configure", &PyHardwareSwitch::configure, "ports"_a, nb::kw_only(), "is_float"_a = true,
           "Set the ports that fold, from the next epoch of a job on.")
      .def("counts", &PyHardwareSwitch::counts, "The hardware's counters by name, and cycles, busy_s, cycles_per_s.")
      .def("close", &PyHardwareSwitch::close, "Stops; idempotent.");
}
