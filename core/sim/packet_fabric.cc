#include "sim/packet_fabric.h"

#include <algorithm>
#include <map>

#include "sim/index.h"

namespace netfold::sim {
namespace {}  // namespace

Fabric::Fabric(const Topology& topology, const PacketSettings& settings) : topology_(topology), settings_(settings) {
  const auto priorities = index(settings.priorities.count);
  ports_.resize(topology.links().size());
  for (Port& port : ports_) {
    port.queues.resize(priorities);
    port.buffer_bytes.resize(priorities, 0);
    port.pauses.resize(priorities, 0);
  }
}

int Fabric::add_flow(std::vector<int> links, std::vector<int> priorities, int from_host, int to_host) {
  Flow flow{std::move(links), std::move(priorities), {}, 0, from_host, to_host};
  flow.waiting.resize(flow.links.size());
  flows_.push_back(std::move(flow));
  return static_cast<int>(flows_.size()) - 1;
}

void Fabric::offer(int flow, double size_bytes) {
  const bool is_waiting = flows_[index(flow)].unsent_bytes > 0;
  flows_[index(flow)].unsent_bytes += size_bytes;
  if (!is_waiting) wait_at(flow, 0);
}

void Fabric::set_timer(double at_s, int id) {
  push(at_s, Kind::kTimer, id);
}

bool Fabric::later(const Event& one, const Event& other) {
  return one.at_s > other.at_s || (one.at_s == other.at_s && one.turn > other.turn);
}

void Fabric::push(double at_s, Kind kind, int which, int priority_or_link) {
  events_.push_back({at_s, turns_++, kind, which, priority_or_link});
  std::push_heap(events_.begin(), events_.end(), later);
}

bool Fabric::run(const std::function<void(int, double)>& arrived, const std::function<void(int)>& expired,
                 const GoesOn& goes_on) {
  std::size_t handled = 0;
  while (!events_.empty() && packets_sent_ <= settings_.packets_max) {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = events_.back();
    events_.pop_back();
    if (++handled % kEventsBetweenQuestions == 0 && goes_on && !goes_on()) return false;
    now_s_ = event.at_s;
    switch (event.kind) {
      case Kind::kTimer: expired(event.which); break;
      case Kind::kArrived: arrive(event.which, arrived); break;
      case Kind::kSent:
        ports_[index(event.priority_or_link)].is_busy = false;
        leave_buffer(packets_[index(event.which)]);
        if (settings_.cut_through) free_packets_.push_back(event.which);  // what goes on is a packet of its own
        serve(event.priority_or_link);
        break;
      case Kind::kPause:
      case Kind::kResume:
        ports_[index(event.which)].queues[index(event.priority_or_link)].is_paused = event.kind == Kind::kPause;
        if (event.kind == Kind::kResume) serve(event.which);
        break;
    }
  }
  return events_.empty();
}

double Fabric::rate_of(int link) const {
  const int resource = topology_.links()[index(link)].resource;
  return topology_.resources()[index(resource)].capacity_bit_s / kBitsPerByte;
}

// A packet of the flow has come to the port of its link number `hop`, or there is more to send.
void Fabric::wait_at(int flow, int hop) {
  const Flow& waiting = flows_[index(flow)];
  const int link = waiting.links[index(hop)];
  auto& turns = ports_[index(link)].queues[index(waiting.priorities[index(hop)])].turns;
  const bool in_turns = settings_.fair_queues || hop == 0;
  if (!in_turns || waiting.waiting[index(hop)].size() <= 1) turns.push_back(flow);
  serve(link);
}

void Fabric::serve(int link) {
  Port& port = ports_[index(link)];
  if (port.is_busy) return;
  for (std::size_t tried = 0; tried < port.queues.size(); ++tried) {
    const int priority = port.next_priority;
    port.next_priority = (priority + 1) % static_cast<int>(port.queues.size());
    Queue& queue = port.queues[index(priority)];
    if (queue.is_paused || queue.turns.empty()) continue;
    const int flow = queue.turns.front();
    queue.turns.pop_front();
    const auto& links = flows_[index(flow)].links;
    const int hop = static_cast<int>(std::ranges::find(links, link) - links.begin());
    const int packet = take(flow, hop);
    const Flow& rest = flows_[index(flow)];
    const bool has_more = hop == 0 ? rest.unsent_bytes > 0 : !rest.waiting[index(hop)].empty();
    if (has_more && (settings_.fair_queues || hop == 0)) queue.turns.push_back(flow);
    send(link, packet);
    return;
  }
}

// The flow's next packet at this hop; at the first it is made.
int Fabric::take(int flow, int hop) {
  Flow& taken = flows_[index(flow)];
  if (hop > 0) {
    const int packet = taken.waiting[index(hop)].front();
    taken.waiting[index(hop)].pop_front();
    return packet;
  }
  const double size_bytes = std::min(settings_.packet_bytes, taken.unsent_bytes);
  taken.unsent_bytes = std::max(0.0, taken.unsent_bytes - size_bytes);
  if (taken.unsent_bytes < 0.5) taken.unsent_bytes = 0;  // sizes are whole bytes, but for rounding
  ++packets_sent_;
  if (free_packets_.empty()) {
    packets_.push_back({});
    free_packets_.push_back(static_cast<int>(packets_.size()) - 1);
  }
  const int packet = free_packets_.back();
  free_packets_.pop_back();
  packets_[index(packet)] = {flow, 0, size_bytes, now_s_};
  return packet;
}

void Fabric::send(int link, int packet) {
  const Packet sent = packets_[index(packet)];
  const Link& way = topology_.links()[index(link)];
  const double ends_s = std::max(now_s_ + sent.size_bytes / rate_of(link), sent.tail_s);
  ports_[index(link)].is_busy = true;
  const bool is_last = index(sent.hop) + 1 == flows_[index(sent.flow)].links.size();
  if (!settings_.cut_through) {
    push(ends_s, Kind::kSent, packet, link);
    push(ends_s + way.latency_s, Kind::kArrived, packet);
    return;
  }
  const double header_s = now_s_ + std::min(settings_.header_bytes, sent.size_bytes) / rate_of(link);
  if (free_packets_.empty()) {
    packets_.push_back({});
    free_packets_.push_back(static_cast<int>(packets_.size()) - 1);
  }
  const int behind = free_packets_.back();
  free_packets_.pop_back();
  packets_[index(behind)] = {sent.flow, sent.hop, sent.size_bytes, ends_s + way.latency_s};
  push(ends_s, Kind::kSent, packet, link);
  push((is_last ? ends_s : header_s) + way.latency_s, Kind::kArrived, behind);
}

// A packet that has left over link number `hop` of its route is out of the buffer before that.
void Fabric::leave_buffer(const Packet& packet) {
  if (packet.hop == 0) return;
  const Flow& flow = flows_[index(packet.flow)];
  const int before = flow.links[index(packet.hop - 1)], priority = flow.priorities[index(packet.hop - 1)];
  Port& port = ports_[index(before)];
  double& held = port.buffer_bytes[index(priority)];
  held -= packet.size_bytes;
  if (port.pauses[index(priority)] != 0 && held <= settings_.resume_bytes) {
    port.pauses[index(priority)] = 0;
    push(now_s_ + topology_.links()[index(before)].latency_s, Kind::kResume, before, priority);
  }
}

void Fabric::arrive(int packet, const std::function<void(int, double)>& arrived) {
  Packet& here = packets_[index(packet)];
  Flow& flow = flows_[index(here.flow)];
  const int link = flow.links[index(here.hop)], priority = flow.priorities[index(here.hop)];
  if (index(here.hop) + 1 == flow.links.size()) {
    const int done = here.flow;
    const double size_bytes = here.size_bytes;
    free_packets_.push_back(packet);
    arrived(done, size_bytes);
    return;
  }
  Port& port = ports_[index(link)];
  double& held = port.buffer_bytes[index(priority)];
  held += here.size_bytes;
  buffer_max_bytes_ = std::max(buffer_max_bytes_, held);
  if (port.pauses[index(priority)] == 0 && held >= settings_.pause_bytes) {
    port.pauses[index(priority)] = 1;
    ++pauses_;
    push(now_s_ + topology_.links()[index(link)].latency_s, Kind::kPause, link, priority);
  }
  ++here.hop;
  if (!settings_.cut_through) here.tail_s = now_s_;
  flow.waiting[index(here.hop)].push_back(packet);
  wait_at(here.flow, here.hop);
}

std::vector<Held> Fabric::circle() const {
  // Where packets are stuck: the buffer that each waits in, and the one that it waits for.
  struct Wait {
    Channel next;
    int flow;
  };
  const auto priorities = settings_.priorities.count;
  std::map<int, Wait> waits;
  for (std::size_t number = 0; number < flows_.size(); ++number) {
    const Flow& flow = flows_[number];
    for (std::size_t hop = 1; hop < flow.links.size(); ++hop) {
      const Channel next{flow.links[hop], flow.priorities[hop]};
      const bool is_paused = ports_[index(next.link)].queues[index(next.priority)].is_paused;
      if (flow.waiting[hop].empty() || !is_paused) continue;
      waits.try_emplace(flow.links[hop - 1] * priorities + flow.priorities[hop - 1],
                        Wait{next, static_cast<int>(number)});
    }
  }
  for (const auto& [first, wait] : waits) {
    std::vector<int> seen;
    int at = first;
    while (waits.contains(at) && std::ranges::find(seen, at) == seen.end()) {
      seen.push_back(at);
      const Wait& found = waits.at(at);
      at = found.next.link * priorities + found.next.priority;
    }
    const auto start = std::ranges::find(seen, at);
    if (start == seen.end()) continue;
    std::vector<Held> held;
    for (auto each = start; each != seen.end(); ++each) {
      const Flow& flow = flows_[index(waits.at(*each).flow)];
      held.push_back({{*each / priorities, *each % priorities}, flow.from_host, flow.to_host});
    }
    return held;
  }
  return {};
}

}  // namespace netfold::sim
