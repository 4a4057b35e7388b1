#include "switch/ethernet/pipeline.h"

namespace netfold::switching {
namespace {

constexpr Nanoseconds kTimeStep = kMillisecond;  // between two on_time()

}  // namespace

Pipeline::Pipeline(link::BufferPool& pool, PipelinePorts ports, MacTable& addresses,
                   std::vector<std::unique_ptr<ProtocolHandler>> handlers, PipelineOptions options)
    : ports_(std::move(ports)),
      addresses_(addresses),
      options_(options),
      outbox_(pool, ports_.all, addresses, ports_.peers),
      handlers_(std::move(handlers)),
      counters_(ports_.all.size()),
      is_up_(ports_.all.size(), true),
      learned_(ports_.all.size()) {}

Pipeline::~Pipeline() {
  for (const auto& handler : handlers_) handler->drain(outbox_);
}

std::size_t Pipeline::pump(Nanoseconds now) {
  outbox_.set_now(now);
  std::size_t frames = 0;
  for (const link::PortNumber port : ports_.receiving) frames += receive(*ports_.all[port]);
  if (ports_.inbox != nullptr) frames += receive(*ports_.inbox);
  outbox_.flush();
  if (now - time_told_ >= kTimeStep) on_time();
  return frames;
}

std::size_t Pipeline::receive(link::Port& from) {
  const std::size_t count = from.receive(burst_);
  const bool is_handed_over = &from == ports_.inbox;
  for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(burst_[i].bytes);
  if (count > 0) {
    for (const auto& handler : handlers_) handler->on_burst({burst_.data(), count});
  }
  for (std::size_t i = 0; i < count; ++i) handle(burst_[i], is_handed_over);
  if (count > 0) {
    for (const auto& handler : handlers_) handler->on_burst_end(outbox_);
  }
  if (outbox_.queued() >= kBurst) outbox_.flush();
  return count;
}

void Pipeline::handle(const link::Frame& frame, bool is_handed_over) {
  PortCounters& counters = counters_[frame.port];
  ParsedFrame& parsed = parsed_;
  const Flaw flaw = parse(frame, options_.parse, parsed);
  if (!is_handed_over) {  // else the thread that received it has done this
    counters.received.add(1);
    counters.received_bytes.add(frame.size_bytes);
    if (flaw != Flaw::kNone) counters.flaws[static_cast<std::size_t>(flaw)].add(1);
    if (ends_here(flaw)) return drop(frame);
    learn(parsed.from, frame.port);
    if (parsed.to.is_reserved()) return counters.filtered.add(1), drop(frame);
    switch (options_.threads == 1 && options_.thread == 0 ? Place::kHere : place_of(parsed)) {
      case Place::kHere: break;
      case Place::kElsewhere: return;
      case Place::kReadElsewhere: return forward(parsed);
    }
  }
  for (const auto& handler : handlers_) {
    switch (handler->offer(parsed, outbox_)) {
      case HandlerVerdict::kNotMine: continue;
      case HandlerVerdict::kTaken: return counters.taken.add(1);
      case HandlerVerdict::kDropped: return counters.dropped.add(1), drop(frame);
      case HandlerVerdict::kForward: break;
    }
    if (is_handed_over && handler->only_reads()) return drop(frame);  // who received it has forwarded it
    break;
  }
  forward(parsed);
}

void Pipeline::forward(const ParsedFrame& parsed) {
  PortCounters& counters = counters_[parsed.frame.port];
  switch (outbox_.forward(parsed.to, parsed.frame)) {
    case Outbox::Way::kPort: return counters.forwarded.add(1);
    case Outbox::Way::kFlooded: return counters.flooded.add(1);
    case Outbox::Way::kNowhere: return counters.filtered.add(1);
  }
}

void Pipeline::learn(MacAddress from, link::PortNumber port) {
  Learned& last = learned_[port];
  if (last.from == from && last.at == outbox_.time()) return;  // in this very burst
  last = {from, outbox_.time()};
  addresses_.learn(from, port, outbox_.time());
}

// Hands the frame, or a reference to it, to the thread that it is for, if that is not this one.
Pipeline::Place Pipeline::place_of(const ParsedFrame& frame) {
  for (const auto& handler : handlers_) {
    if (!handler->recognises(frame)) continue;
    const std::uint16_t thread = handler->thread_of(frame, options_.threads);
    if (thread == options_.thread || thread == kAnyThread) return Place::kHere;
    PortCounters& counters = counters_[frame.frame.port];
    if (!handler->only_reads()) {
      (outbox_.hand_over(thread, frame.frame) ? counters.handed_over : counters.dropped_handover).add(1);
      return Place::kElsewhere;
    }
    if (!outbox_.settings().folds(frame.frame.port)) return Place::kReadElsewhere;  // by no handler
    outbox_.pool().retain(frame.frame.buffer, 1);
    link::Frame reference = frame.frame;
    reference.is_shared = true;
    if (!outbox_.hand_over(thread, reference)) counters.unread_handover.add(1);
    return Place::kReadElsewhere;
  }
  return Place::kHere;
}

void Pipeline::on_time() {
  time_told_ = outbox_.time();
  for (link::PortNumber port = 0; port < ports_.all.size(); ++port) {
    const bool is_up = ports_.all[port]->is_up();
    if (is_up == is_up_[port]) continue;
    is_up_[port] = is_up;
    if (!is_up) addresses_.forget_port(port);
    for (const auto& handler : handlers_) handler->on_port(port, is_up, outbox_);
  }
  for (const auto& handler : handlers_) handler->on_time(time_told_, outbox_);
  outbox_.flush();
}

}  // namespace netfold::switching
