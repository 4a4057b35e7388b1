// Ports, queues, buffers and pauses: packets on their way over links (packet_simulator.h has the words). Flows are
// given their links and bytes; the caller that drives the fabric is told of every packet that arrives, and of timers it
// set.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/packet_simulator.h"
#include "sim/topology.h"

namespace netfold::sim {

class Fabric {
 public:
  Fabric(const Topology& topology, const PacketSettings& settings);

  // A flow over `links`, whose packets have `priorities[i]` on links[i]. The hosts are for reports.
  int add_flow(std::vector<int> links, std::vector<int> priorities, int from_host, int to_host);
  void offer(int flow, double size_bytes);  // more to send, in packets; those of a flow arrive in order
  void set_timer(double at_s, int id);

  // Until nothing happens any more, or `packets_max` is passed or it is not to go on (false). `arrived` gets the flow
  // of each packet at its last link's end, `expired` the timer's id.
  bool run(const std::function<void(int flow, double size_bytes)>& arrived, const std::function<void(int id)>& expired,
           const GoesOn& goes_on);

  double now_s() const { return now_s_; }
  std::size_t packets() const { return packets_sent_; }
  std::size_t pauses() const { return pauses_; }
  double buffer_max_bytes() const { return buffer_max_bytes_; }

  // A cycle of buffers, each of whose first packet waits for the next; empty: there is no cycle.
  std::vector<Held> circle() const;

 private:
  struct Flow {
    std::vector<int> links, priorities;
    std::vector<std::deque<int>> waiting;  // packets, by hop
    double unsent_bytes = 0;
    int from_host, to_host;
  };
  struct Packet {
    int flow, hop;
    double size_bytes;
    double tail_s;  // when all of it is at the node where it waits
  };
  struct Queue {
    std::deque<int> turns;  // flows with packets here, or, where packets go as they came, the flow of each
    bool is_paused = false;
  };
  struct Port {
    std::vector<Queue> queues;         // by priority
    std::vector<double> buffer_bytes;  // by priority, at the far end
    std::vector<char> pauses;          // whether that buffer pauses this port
    int next_priority = 0;
    bool is_busy = false;
  };
  enum class Kind : std::uint8_t { kSent, kArrived, kPause, kResume, kTimer };
  struct Event {
    double at_s;
    std::uint64_t turn;
    Kind kind;
    int which, priority_or_link;
  };

  static bool later(const Event& one, const Event& other);
  void push(double at_s, Kind kind, int which, int priority_or_link = 0);
  void wait_at(int flow, int hop);
  void serve(int link);
  int take(int flow, int hop);
  void send(int link, int packet);
  void leave_buffer(const Packet& packet);
  void arrive(int packet, const std::function<void(int, double)>& arrived);
  double rate_of(int link) const;

  const Topology& topology_;
  const PacketSettings& settings_;
  std::vector<Flow> flows_;
  std::vector<Packet> packets_;
  std::vector<int> free_packets_;
  std::vector<Port> ports_;
  std::vector<Event> events_;
  std::uint64_t turns_ = 0;
  double now_s_ = 0, buffer_max_bytes_ = 0;
  std::size_t packets_sent_ = 0, pauses_ = 0;
};

}  // namespace netfold::sim
