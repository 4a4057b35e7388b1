// A worker's data path: operations in, contributions and probes out over a link, results in, finished operations out.
// It runs the window over a link, but starts no thread and reads no clock: the client's progress thread drives it with
// real time, the seeded simulations of tests/protocol with virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "group/scratch_pool.h"
#include "group/via_switch/operation.h"
#include "group/via_switch/path_watch.h"
#include "group/via_switch/window.h"
#include "link/link.h"
#include "wire/control/messages.h"
#include "wire/lease.h"
#include "wire/path_probe.h"

namespace netfold::group {

struct DataPathStats {
  WindowStats window;
  link::LinkStats link;
  std::uint64_t dropped_packets = 0;   // foreign, stale, malformed or badly tagged
  std::uint64_t reduced_elements = 0;  // of finished operations
};

class DataPath {
 public:
  // `link` must outlive the stream; `shards` are the switch's data addresses.
  DataPath(const wire::Lease& lease, std::uint16_t rank, WindowOptions options, link::Link& link,
           std::vector<link::Address> shards);

  // Where the switch sends back what has this nonce; from now on shrunk() may find something.
  void watch_path(link::Address path, const control::Nonce& nonce);

  void submit(std::unique_ptr<Operation> operation, Nanoseconds now);

  // Receives what has come and sends what may go. True if the link is full and should be polled for writing.
  bool pump(Nanoseconds now);
  Nanoseconds deadline() const;
  bool is_idle() const { return window_.is_idle(); }

  // The switch says how the job shares its link.
  void on_share(const control::LinkShare& share, Nanoseconds now);

  // The other ranks wait for this one.
  void catch_up() { window_.catch_up(); }

  // Tickets finished since the last call.
  std::vector<Operation::Ticket> take_finished();
  // Puts every unfinished tensor back as it was and returns their tickets, oldest first.
  std::vector<Operation::Ticket> abandon();

  // Why there is no progress, after a `timeout` without any: names the rank that is missing, or the switch.
  // `above`: the switch above that one, if there is one; it is named if the rank's switch waits for it.
  std::optional<Error> overdue(Nanoseconds now, Nanoseconds timeout, const std::string& switch_name,
                               const std::string& above = "") const;
  // The switch has not answered for longer than `longest`, though this rank asks it.
  std::optional<Error> silent(Nanoseconds now, Nanoseconds longest, const std::string& switch_name) const;
  // Packets of this job's size no longer pass between this rank and the switch, though small ones do.
  std::optional<Error> shrunk(const std::string& switch_name) const;
  std::optional<std::uint16_t> missing_rank() const { return window_.missing_rank(); }
  void forget_missing_rank() { window_.forget_missing_rank(); }
  Nanoseconds last_progress() const { return window_.last_progress(); }
  // From the beginning of the stream: before so many chunks none is unfinished.
  std::uint64_t finished_chunks() const { return window_.base() - lease_.first_chunk; }
  std::uint64_t sent_chunks() const { return window_.next_new() - lease_.first_chunk; }
  std::uint64_t returned_chunks() const { return window_.done() - lease_.first_chunk; }  // whatever their order
  std::uint32_t window_chunks() const { return window_.window_chunks(); }

  DataPathStats stats() const;

 private:
  struct Prepared {
    std::array<std::byte, wire::kHeaderBytes> head;
    wire::Tag tag;
  };

  Error no_answer(const std::string& switch_name, double waited_s) const;
  void send_path_probes();
  std::size_t packet_bytes() const;  // of a full chunk, from the header of IP on
  void receive(Nanoseconds now);
  void handle(const link::Incoming& datagram, Nanoseconds now);
  bool is_ours(const link::Incoming& datagram, const wire::Packet& packet) const;
  void handle_result(const wire::Packet& packet, Window::Position position, Nanoseconds now);
  void handle_done(Window::Position position, Nanoseconds now);
  void finish_if_whole(Operation& operation);
  bool send(Nanoseconds now);
  link::Outgoing prepare(const Window::Transmission& transmission, std::size_t place);
  Operation& operation_at(Window::Position position);

  wire::Lease lease_;
  std::uint16_t rank_;
  link::Link& link_;
  std::vector<link::Address> shards_;
  Window window_;
  std::deque<std::unique_ptr<Operation>> operations_;  // unfinished, and finished ones with an older unfinished
  std::vector<Window::Transmission> pending_;          // wanted by the window, not taken by the link yet
  std::vector<link::Outgoing> sending_;
  std::vector<Prepared> prepared_;
  std::vector<std::byte> payload_room_;
  std::vector<Operation::Ticket> finished_;
  ScratchPool buffers_;
  std::uint64_t dropped_packets_ = 0, reduced_elements_ = 0;
  Nanoseconds heard_at_ = 0;  // the last packet of the switch, or the end of idleness
  Nanoseconds pumped_at_ = 0;
  PathWatch path_watch_;
  link::Address path_{};  // port 0: the switch sends nothing back
  control::Nonce path_nonce_ = {};
};

}  // namespace netfold::group
