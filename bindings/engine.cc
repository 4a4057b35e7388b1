// The engine for Python: a worker's client and an embedded switch. Errors of the core become NetfoldError.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/switch_server.h"
#include "errors.h"
#include "module.h"
#include "tickets.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold {
namespace {

using engine::Client;
using engine::SwitchServer;

// A client whose blocking calls let other threads run and hear Ctrl-C.
class PyClient {
 public:
  PyClient(const engine::ClientOptions& options) {
    auto joined = [&] {
      const nb::gil_scoped_release release;
      return Client::join(options);
    }();
    if (!joined) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();  // a signal handler raised while we joined
      raise(joined.error());
    }
    client_ = std::move(*joined);
  }

  std::uint64_t all_reduce(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                           const std::string& wire, bool average) {
    const auto ticket = client_->submit({reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), count,
                                         element_type_of(type), format_of(wire), average});
    if (!ticket) raise(ticket.error());
    return *ticket;
  }

  void wait(std::uint64_t ticket) { wait_for_ticket(*client_, ticket); }
  auto next_completion(double timeout_s) { return next_finished(*client_, timeout_s); }

  nb::object stats() const { return to_python(client_->counters()); }

  nb::object lease() const { return to_python(engine::to_json(client_->lease())); }

  void close(const std::string& reason) {
    std::optional<Error> error;
    if (!reason.empty()) error = Error{ErrorCode::kPeerFailed, reason};
    const nb::gil_scoped_release release;
    client_->close(error);
  }

 private:
  std::unique_ptr<Client> client_;
};

class PySwitch {
 public:
  PySwitch(const std::string& bind, std::uint16_t shards, const std::string& secret, bool require_auth,
           std::uint16_t jobs_max, std::size_t memory_max_bytes, double heartbeat_s, const std::vector<int>& cores) {
    const auto address = link::parse_address(bind);
    if (!address) raise(address.error());
    engine::SwitchServerOptions options;
    options.bind = *address;
    options.data.shards = shards;
    options.data.cores = cores;
    options.secret = secret;
    options.require_auth = require_auth;
    options.jobs_max = jobs_max;
    options.memory_max_bytes = memory_max_bytes;
    options.heartbeat_s = heartbeat_s;
    auto server = SwitchServer::start(std::move(options));
    if (!server) raise(server.error());
    server_ = std::move(*server);
  }

  std::string address() const { return link::to_string(require().address()); }

  nb::object stats() const { return to_python(engine::to_json(require().stats())); }

  void close() {
    const nb::gil_scoped_release release;
    server_.reset();
  }

 private:
  const SwitchServer& require() const {
    if (!server_) throw nb::value_error("this switch has been closed");
    return *server_;
  }

  std::unique_ptr<SwitchServer> server_;
};

void bind_client(nb::module_& module) {
  nb::class_<PyClient>(module, "Client", "A worker in a job: hands all-reduces to the switch and waits for them.")
      .def(
          "__init__",
          [](PyClient* self, const std::string& switch_address, const std::string& job, std::uint16_t world,
             std::uint16_t rank, const std::string& secret, bool require_auth, double timeout_s,
             double connect_timeout_s, std::uint32_t window, int block, int mantissa, int core,
             const std::string& faults, const std::string& pcap) {
            engine::ClientOptions options;
            options.switch_address = switch_address;
            options.job = job;
            options.world = world;
            options.rank = rank;
            options.secret = secret;
            options.require_auth = require_auth;
            options.timeout_s = timeout_s;
            options.connect_timeout_s = connect_timeout_s;
            options.window = window;
            options.bfp = {static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
            if (block < 0 || block > 255 || mantissa < 0 || mantissa > 255 || !numbers::is_valid(options.bfp)) {
              throw nb::value_error("a bfp shape has a block of 8, 16, 32, 64 or 128 and a mantissa of 2 to 7 bits");
            }
            options.core = core;
            options.faults = faults;
            options.pcap_path = pcap;
            options.keep_going = &no_signal_came;
            new (self) PyClient(options);
          },
          "switch"_a, "job"_a, "world"_a, "rank"_a, nb::kw_only(), "secret"_a = "", "require_auth"_a = false,
          "timeout_s"_a = 30.0, "connect_timeout_s"_a = 30.0, "window"_a = 0, "block"_a = 16, "mantissa"_a = 7,
          "core"_a = -1, "faults"_a = "", "pcap"_a = "",
          "Joins `job` at the switch `host:port` as `rank` of `world`; blocks until all are there, at most timeout_s,\n"
          "and gives up after connect_timeout_s if no switch answers there.\n"
          "Raises NetfoldError. secret: what the job's workers share. window: chunks in flight, 0 for the default.\n"
          "core: where the progress thread runs, -1 for anywhere. faults: seeded trouble for tests, such as\n"
          "'loss=0.01,duplicate=0.01,reorder=0.05,seed=7'. pcap: a capture file to write.")
      .def("all_reduce", &PyClient::all_reduce, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a,
           "average"_a = false,
           "Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a\n"
           "ticket at once. The memory belongs to the client until the ticket is finished.")
      .def("wait", &PyClient::wait, "ticket"_a,
           "Blocks until the all-reduce is done; raises NetfoldError if it failed.")
      .def("next_completion", &PyClient::next_completion, "timeout_s"_a,
           nb::sig("def next_completion(self, timeout_s: float) -> tuple[int, object] | None"),
           "The next finished (ticket, None or NetfoldError), or None after timeout_s.")
      .def("stats", &PyClient::stats, "Packets, bytes, retransmissions and the measured round trip so far.")
      .def("lease", &PyClient::lease, "What the switch granted: job and epoch numbers, slots, payload_bytes, ...")
      .def("close", &PyClient::close, "reason"_a = "",
           "Leaves the job; what is unfinished fails. A reason tells the other workers that this one failed.");
}

void bind_switch(nb::module_& module) {
  nb::class_<PySwitch>(module, "Switch", "A folding switch in this process, on threads of its own.")
      .def(nb::init<const std::string&, std::uint16_t, const std::string&, bool, std::uint16_t, std::size_t, double,
                    const std::vector<int>&>(),
           "bind"_a = "0.0.0.0:0", nb::kw_only(), "shards"_a = 1, "secret"_a = "", "require_auth"_a = false,
           "jobs_max"_a = 64, "memory_max_bytes"_a = std::size_t{1} << 30, "heartbeat_s"_a = 1.0,
           "cores"_a = std::vector<int>{},
           "Listens at `bind` (port 0: the kernel picks). shards: threads that fold, a power of two.")
      .def_prop_ro("address", &PySwitch::address, "host:port of the control port")
      .def("stats", &PySwitch::stats, "Jobs, counters and drops by reason.")
      .def("close", &PySwitch::close, "Tells the workers and stops; idempotent.");
}

}  // namespace
}  // namespace netfold

void bind_engine(nb::module_& module) {
  nb::set_leak_warnings(false);  // a process that ends in the middle of a job may leave its client to the kernel
  netfold::bind_client(module);
  netfold::bind_switch(module);
  module.attr("NetfoldError") = netfold::error_type();
}
