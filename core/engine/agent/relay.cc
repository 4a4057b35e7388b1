#include "engine/agent/relay.h"

#include <algorithm>

namespace netfold::engine {
namespace {

// Enough to read ahead and write behind, small enough for the caches.
constexpr std::size_t kInFlightBytes = 4 * kPartBytesMax;
constexpr std::size_t kPartsMax = 64;
constexpr std::size_t kJobsMax = 65536;

}  // namespace

Relay::Relay(Channel& channel, const WorkerMemory& memory, UndoLog& log, Engine& engine)
    : requests_(channel.requests),
      answers_(channel.answers),
      worker_gave_up_(channel.worker_gave_up),
      memory_(memory),
      log_(log),
      engine_(engine) {}

Result<bool> Relay::step() {
  has_answered_ = false;
  const auto taken = take_requests();
  if (!taken) return taken;
  const auto finished = finish_parts();
  if (!finished) return finished;
  const auto started = start_parts();
  if (!started) return started;
  const bool answered = answer();
  return *taken || *finished || *started || answered;
}

Result<bool> Relay::take_requests() {
  bool has_taken = false;
  while (jobs_.size() < kJobsMax) {
    const auto request = requests_.pop();
    if (!request) break;
    auto order = check(*request);
    if (!order) return tl::unexpected(order.error());
    jobs_.push_back(std::make_unique<Job>(Job{std::move(*order)}));
    has_taken = true;
  }
  if (!requests_.is_broken()) return has_taken;
  return fail(ErrorCode::kInvalidArgument, "a worker wrote nonsense into the queue of its requests");
}

// One at a time, so that what is finished meanwhile is written back before the next is read.
Result<bool> Relay::start_parts() {
  if (parts_.size() >= kPartsMax || bytes_in_flight_ >= kInFlightBytes) return false;
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& each) { return !each->is_started(); });
  if (job == jobs_.end()) return false;
  if (const auto started = start_part(**job); !started) return tl::unexpected(started.error());
  return true;
}

Result<void> Relay::start_part(Job& job) {
  const Order& order = job.order;
  auto slot = log_.take();
  if (!slot) return tl::unexpected(slot.error());
  job.slots.push_back(*slot);
  Part part{&job, job.started, std::min(kPartElements, order.what.count - job.started), *slot, {}, {}};
  const std::size_t offset = part.first * order.element_bytes();
  if (const auto read = memory_.read(order.out + offset, part.size_bytes(), part.slot->data()); !read) return read;
  part.out = rooms_.take(std::max<std::size_t>(1, part.size_bytes()));
  AllReduce request = order.what;
  request.count = part.count;
  request.in = part.slot->data();
  request.out = part.out.bytes.get();
  if (order.in != order.out) {
    part.in = rooms_.take(std::max<std::size_t>(1, part.size_bytes()));
    if (const auto read = memory_.read(order.in + offset, part.size_bytes(), part.in.bytes.get()); !read) return read;
    request.in = part.in.bytes.get();
  }
  job.has_started = true;
  job.started += part.count;
  ++job.parts;
  bytes_in_flight_ += part.size_bytes();
  CollectiveOptions how = order.how;  // a part must meet the same part of the same tensor
  how.whole = order.what.count;
  how.part_at = part.first;
  const auto ticket = engine_.submit(request, how);
  if (!ticket) return tl::unexpected(ticket.error());
  parts_.emplace(*ticket, std::move(part));
  return {};
}

Result<bool> Relay::finish_parts() {
  bool has_finished = false;
  while (const auto completion = engine_.next_completion(0)) {
    const auto found = parts_.find(completion->ticket);
    if (found == parts_.end()) continue;
    if (completion->error) return tl::unexpected(*completion->error);
    if (const auto finished = finish(found->second); !finished) return tl::unexpected(finished.error());
    parts_.erase(found);
    has_finished = true;
  }
  return has_finished;
}

Result<void> Relay::finish(Part& part) {
  Job& job = *part.of;
  const Order& order = job.order;
  if (worker_gave_up_.load(std::memory_order_acquire) != 0) {
    return fail(ErrorCode::kTimeout, "the worker had to wait for its agent for too long");
  }
  const std::uint64_t address = order.out + part.first * order.element_bytes();
  part.slot->mark(order.ticket, address, part.size_bytes());
  if (const auto written = memory_.write(address, part.size_bytes(), part.out.bytes.get()); !written) return written;
  bytes_in_flight_ -= part.size_bytes();
  rooms_.give_back(std::move(part.in));
  rooms_.give_back(std::move(part.out));
  if (--job.parts > 0 || !job.is_started()) return {};
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& each) { return each.get() == &job; });
  done_.push_back(std::move(*found));
  jobs_.erase(found);
  return {};
}

// The undo log is cleared behind the answer: from then on the worker puts nothing of this request back.
bool Relay::answer() {
  while (!done_.empty() && answers_.push({done_.front()->order.ticket})) {
    for (UndoLog::Slot* const slot : done_.front()->slots) log_.give_back(slot);
    done_.pop_front();
    has_answered_ = true;
  }
  return has_answered_;
}

}  // namespace netfold::engine
