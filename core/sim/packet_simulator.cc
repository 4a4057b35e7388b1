#include "sim/packet_simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "sim/index.h"
#include "sim/packet_fabric.h"

namespace netfold::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();

Result<void> check(const Topology& topology, const PacketSettings& settings) {
  if (!(settings.packet_bytes >= 1)) return wrong("a packet has one byte or more");
  if (!(settings.header_bytes >= 1)) return wrong("a header has one byte or more");
  if (!(settings.pause_bytes >= settings.packet_bytes)) {
    return wrong(fmt::format("a buffer that pauses at {} bytes has no room for a packet of {}", settings.pause_bytes,
                             settings.packet_bytes));
  }
  if (!(settings.resume_bytes >= 0) || settings.resume_bytes >= settings.pause_bytes) {
    return wrong("a buffer lets packets come again at fewer bytes than it pauses at");
  }
  if (settings.slots < 1) return wrong("a switch has one slot or more");
  std::vector<int> links_on(topology.resources().size(), 0);
  for (const Link& link : topology.links()) {
    if (++links_on[index(link.resource)] > 1) {
      return wrong(fmt::format("{}: several links share it, which packets do not; simulate flows",
                               topology.name_of_resource(link.resource)));
    }
    if (!std::isfinite(topology.resources()[index(link.resource)].capacity_bit_s)) {
      return wrong(fmt::format("{} has no rate: packets take time", topology.name_of_resource(link.resource)));
    }
  }
  return {};
}

tl::unexpected<Error> too_many(const PacketSettings& settings) {
  return wrong(fmt::format("more than {} packets: take a smaller tensor, larger packets, or simulate flows",
                           settings.packets_max));
}

class PacketRun {
 public:
  PacketRun(Network& network, const Workload& workload, const PacketSettings& settings)
      : network_(network),
        workload_(workload),
        settings_(settings),
        fabric_(network.topology(), settings),
        waits_(workload.tasks.size()),
        queues_(index(workload.queues), kNone) {
    result_.start_s.assign(workload.tasks.size(), kNever);
    result_.end_s.assign(workload.tasks.size(), kNever);
  }

  Result<PacketResult> to_the_end() {
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      waits_[task] = workload_.needs(static_cast<int>(task));
      if (waits_[task] == 0) release(static_cast<int>(task));
    }
    const bool ended = fabric_.run([this](int flow, double size_bytes) { arrived(flow, size_bytes); },
                                   [this](int timer) { expired(timer); }, network_.goes_on());
    if (error_) return tl::unexpected(*error_);
    if (!ended && fabric_.packets() <= settings_.packets_max) {
      return fail(ErrorCode::kTimeout, "the simulation was interrupted");
    }
    if (!ended) return too_many(settings_);
    result_.packets = fabric_.packets();
    result_.pauses = fabric_.pauses();
    result_.buffer_max_bytes = fabric_.buffer_max_bytes();
    result_.is_deadlocked = ended_ < workload_.tasks.size();
    if (result_.is_deadlocked) {
      result_.time_s = fabric_.now_s();
      result_.waiting = fabric_.circle();
    }
    return std::move(result_);
  }

 private:
  struct Part {
    int task;
    double left_bytes;
  };
  using Flow = std::deque<Part>;  // what it carries, one task after the other
  // A node of a fold's tree: what its children have sent, and where sums go.
  struct Folding {
    int up = kNone;           // flow to the parent
    std::vector<int> downs;   // flows to the children
    std::vector<int> counts;  // contributions by chunk
    double free_s = 0;        // when it may fold the next packet
    double rate_bit_s = kUnlimited;
    int folded = 0, has_slots_to = 0;  // chunks
  };
  struct Edge {  // what a flow of a fold does when a packet arrives
    int node;
    bool is_up;
    int chunks = 0;  // that have arrived
  };

  // Timers are tasks that start, and chunks that are folded.
  void release(int task) { fabric_.set_timer(fabric_.now_s() + workload_.tasks[index(task)].delay_s, task); }

  void expired(int timer) {
    const int tasks = static_cast<int>(workload_.tasks.size());
    if (timer >= tasks) return chunk_folded(timer - tasks);
    start(timer);
  }

  void start(int task) {
    const Task& started = workload_.tasks[index(task)];
    result_.start_s[index(task)] = fabric_.now_s();
    if (started.is_in_network) return start_fold(task);
    if (!started.is_transfer() || started.size_bits <= 0) return end(task);
    auto links = network_.links_of(workload_, task);
    if (!links) return give_up(links.error());
    if (links->empty()) return end(task);
    // Tasks of a queue are one flow, and packets of a flow do not overtake each other.
    int own = kNone;
    int& flow = started.queue == Task::kNobody ? own : queues_[index(started.queue)];
    if (flow == kNone) flow = add_flow(std::move(*links), host_of(started.sender), host_of(started.receiver));
    const double size_bytes = std::ceil(started.size_bits / kBitsPerByte);
    flows_[index(flow)].push_back({task, size_bytes});
    fabric_.offer(flow, size_bytes);
  }

  int add_flow(std::vector<int> links, int from, int to) {
    std::vector<int> priorities;
    for (std::size_t hop = 0; hop < links.size(); ++hop) {
      priorities.push_back(settings_.priorities.of(from, static_cast<int>(hop)));
    }
    const int number = fabric_.add_flow(std::move(links), std::move(priorities), from, to);
    flows_.resize(index(number) + 1);
    return number;
  }

  void arrived(int flow, double size_bytes) {
    if (const auto edge = edges_.find(flow); edge != edges_.end()) return chunk_arrived(edge->second, size_bytes);
    while (size_bytes > 0 && !flows_[index(flow)].empty()) {
      Part& got = flows_[index(flow)].front();
      const double taken = std::min(size_bytes, got.left_bytes);
      got.left_bytes -= taken;
      size_bytes -= taken;
      if (got.left_bytes >= 0.5) return;
      const int task = got.task;
      flows_[index(flow)].pop_front();
      end(task);
    }
  }

  void end(int task) {
    ++ended_;
    result_.end_s[index(task)] = result_.time_s = fabric_.now_s();
    for (const int later : workload_.needed_by(task)) {
      if (--waits_[index(later)] == 0) release(later);
    }
  }

  void give_up(const Error& error) {
    if (!error_) error_ = error;
  }

  int host_of(int rank) const { return network_.placement().hosts[index(rank)]; }

  void start_fold(int task) {
    const auto tree = network_.fold_tree();
    if (!tree) return give_up(tree.error());
    fold_task_ = task;
    chunks_ =
        static_cast<int>(std::ceil(workload_.tasks[index(task)].size_bits / kBitsPerByte / settings_.packet_bytes));
    const Topology& topology = network_.topology();
    for (const auto& [node, way] : tree->ways) {
      const Node& told = topology.nodes()[index(node)];
      Folding& folding = folding_[node];
      folding.counts.assign(index(chunks_), 0);
      if (told.kind != NodeKind::kHost) {
        if (told.fold_resource == kNone) {
          return give_up(Error{ErrorCode::kInvalidArgument,
                               fmt::format("{} is on the way and does not fold: packets are folded at every switch of "
                                           "the tree; give it a fold rate, or simulate flows",
                                           told.name)});
        }
        folding.rate_bit_s = topology.resources()[index(told.fold_resource)].capacity_bit_s;
      } else {
        ++hosts_left_;
      }
      if (way.up == kNone) continue;
      const int above = topology.links()[index(way.up)].to;
      folding.up = add_flow({way.up}, 0, 0);
      edges_[folding.up] = {above, true};
      const int down = add_flow({way.down}, 0, 0);
      edges_[down] = {node, false};
      folding_[above].downs.push_back(down);
    }
    for (auto& [node, folding] : folding_) {
      if (!folding.downs.empty()) continue;
      folding.has_slots_to = std::min(settings_.slots, chunks_);
      fabric_.offer(folding.up, folding.has_slots_to * settings_.packet_bytes);
    }
  }

  void chunk_arrived(Edge& edge, double size_bytes) {
    Folding& folding = folding_[edge.node];
    const int chunk = edge.chunks++;
    if (!edge.is_up) {
      if (!folding.downs.empty()) return send_down(folding);
      if (folding.has_slots_to < chunks_) {  // a slot is free again
        ++folding.has_slots_to;
        fabric_.offer(folding.up, settings_.packet_bytes);
      }
      if (edge.chunks == chunks_ && --hosts_left_ == 0) end(fold_task_);
      return;
    }
    folding.free_s = std::max(folding.free_s, fabric_.now_s()) + size_bytes * kBitsPerByte / folding.rate_bit_s;
    if (++folding.counts[index(chunk)] == static_cast<int>(folding.downs.size())) {
      fabric_.set_timer(folding.free_s, static_cast<int>(workload_.tasks.size()) + edge.node);
    }
  }

  // Chunks complete in order: each child's come in order.
  void chunk_folded(int node) {
    Folding& folding = folding_[node];
    ++folding.folded;
    if (folding.up == kNone) return send_down(folding);
    fabric_.offer(folding.up, settings_.packet_bytes);
  }

  void send_down(const Folding& folding) {
    for (const int down : folding.downs) fabric_.offer(down, settings_.packet_bytes);
  }

  Network& network_;
  const Workload& workload_;
  const PacketSettings& settings_;
  Fabric fabric_;
  PacketResult result_;
  std::vector<int> waits_;
  std::vector<int> queues_;  // their flows
  std::vector<Flow> flows_;
  std::map<int, Folding> folding_;  // by node
  std::map<int, Edge> edges_;       // by flow
  int fold_task_ = 0, chunks_ = 0, hosts_left_ = 0;
  std::size_t ended_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<PacketResult> simulate_packets(Network& network, const Workload& workload, const PacketSettings& settings) {
  if (auto checked = check(network.topology(), settings); !checked) return tl::unexpected(checked.error());
  double packets = 0;
  for (const Task& task : workload.tasks) packets += task.size_bits / kBitsPerByte / settings.packet_bytes;
  if (packets > static_cast<double>(settings.packets_max)) return too_many(settings);
  return PacketRun(network, workload, settings).to_the_end();
}

}  // namespace netfold::sim
