#include "group/via_agent/relay.h"

#include <algorithm>

namespace netfold::group {
namespace {

// Enough to read ahead and write behind, small enough for the caches.
constexpr std::size_t kInFlightBytes = 4 * kSlotDataBytes;
constexpr std::size_t kPartsMax = 64;
constexpr std::size_t kJobsMax = 65536;

}  // namespace

Relay::Relay(Channel& channel, const WorkerMemory& memory, UndoLog& log, Group& engine, int world, int rank)
    : requests_(channel.requests),
      answers_(channel.answers),
      worker_gave_up_(channel.worker_gave_up),
      agent_writes_(channel.agent_writes),
      memory_(memory),
      log_(log),
      engine_(engine),
      world_(world),
      rank_(rank) {}

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
    auto order = check(*request, world_, rank_);
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

Relay::Part Relay::next_part(Job& job) const {
  const Order& order = job.order;
  const std::size_t left = order.what.count - job.started;
  const bool is_cut = order.what.collective == schedule::Collective::kAllReduce;
  const std::size_t count = is_cut ? std::min(kPartElements, left) : left;
  const BufferLayout layout = buffer_layout_of(order.what.collective, count, world_, rank_);
  Part part{&job, job.started, count};
  part.in_bytes = layout.in.count * order.element_bytes();
  part.out_bytes = layout.out.count * order.element_bytes();
  return part;
}

Result<void> Relay::start_part(Job& job) {
  const Order& order = job.order;
  Part part = next_part(job);
  if (const auto saved = save(part); !saved) return saved;
  part.out = buffers_.take(std::max<std::size_t>(1, part.out_bytes));
  const auto in = input_of(part);
  if (!in) return tl::unexpected(in.error());
  CollectiveRequest request = order.what;
  request.count = part.count;
  request.in = *in;
  request.out = part.out.bytes.get();
  request.whole = order.what.count;  // a part must meet the same part of the same tensor
  request.part_at = part.first;
  job.has_started = true;
  job.started += part.count;
  ++job.parts;
  bytes_in_flight_ += part.size_bytes();
  const auto ticket = engine_.submit(request);
  if (!ticket) return tl::unexpected(ticket.error());
  parts_.emplace(*ticket, std::move(part));
  return {};
}

// The bytes that the part will overwrite.
Result<void> Relay::save(Part& part) {
  for (std::size_t done = 0; done < part.out_bytes; done += kSlotDataBytes) {
    auto slot = log_.take();
    if (!slot) return tl::unexpected(slot.error());
    part.slots.push_back(*slot);
    const std::uint64_t address = part.out_address() + done;
    const std::size_t size_bytes = std::min(kSlotDataBytes, part.out_bytes - done);
    (*slot)->is_for(address, size_bytes);
    if (const auto read = memory_.read(address, size_bytes, (*slot)->data()); !read) return read;
  }
  return {};
}

// Where the engine reads it.
Result<const std::byte*> Relay::input_of(Part& part) {
  const CollectiveRequest& what = part.of->order.what;
  const bool only_listens = what.collective == schedule::Collective::kBroadcast && what.root != rank_;
  if (only_listens) return part.out.bytes.get();  // in place, as with every broadcast
  if (part.is_read_already()) return part.slots.front()->data();
  part.in = buffers_.take(std::max<std::size_t>(1, part.in_bytes));
  if (const auto read = memory_.read(part.in_address(), part.in_bytes, part.in.bytes.get()); !read) {
    return tl::unexpected(read.error());
  }
  return part.in.bytes.get();
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
  agent_writes_.store(1, std::memory_order_seq_cst);
  const auto written = write(part);
  agent_writes_.store(0, std::memory_order_release);
  if (!written) return written;
  job.slots.insert(job.slots.end(), part.slots.begin(), part.slots.end());
  bytes_in_flight_ -= part.size_bytes();
  buffers_.give_back(std::move(part.in));
  buffers_.give_back(std::move(part.out));
  if (--job.parts > 0 || !job.is_started()) return {};
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& each) { return each.get() == &job; });
  done_.push_back(std::move(*found));
  jobs_.erase(found);
  return {};
}

Result<void> Relay::write(Part& part) {
  if (worker_gave_up_.load(std::memory_order_seq_cst) != 0) {
    return fail(ErrorCode::kTimeout, "the worker had to wait for its agent for too long");
  }
  for (UndoLog::Slot* const slot : part.slots) slot->mark(part.of->order.ticket);
  return memory_.write(part.out_address(), part.out_bytes, part.out.bytes.get());
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

}  // namespace netfold::group
