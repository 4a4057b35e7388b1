#include "protocol/tree_world.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace netfold::tests {
namespace {

constexpr std::uint16_t kTreeJobsMax = 64;

std::vector<float> pairwise(const std::vector<std::vector<float>>& parts, std::size_t lo, std::size_t hi) {
  if (hi - lo == 1) return parts[lo];
  const std::size_t p = std::bit_floor(hi - lo - 1);
  std::vector<float> sum = pairwise(parts, lo, lo + p);
  const std::vector<float> other = pairwise(parts, lo + p, hi);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

}  // namespace

std::string Shape::text() const {
  if (!is_switch()) return std::to_string(first_rank);
  std::string all = "(";
  for (const Shape& each : below) all += (all.size() > 1 ? " " : "") + each.text();
  return all + ")";
}

Shape worker(std::uint16_t rank) {
  return {rank, 1, {}};
}

Shape switch_above(std::vector<Shape> below) {
  Shape shape{below.front().first_rank, 0, std::move(below)};
  for (const Shape& each : shape.below) shape.ranks = static_cast<std::uint16_t>(shape.ranks + each.ranks);
  return shape;
}

Shape one_switch(std::uint16_t first_rank, std::uint16_t ranks) {
  std::vector<Shape> below;
  for (std::uint16_t rank = 0; rank < ranks; ++rank)
    below.push_back(worker(static_cast<std::uint16_t>(first_rank + rank)));
  return switch_above(std::move(below));
}

namespace {

Shape random_below(std::uint16_t first, std::uint16_t ranks, int levels, bool is_top, Prng& prng) {
  if (levels == 1) return one_switch(first, ranks);
  std::vector<Shape> below;
  bool has_switch = false;
  for (std::uint16_t done = 0; done < ranks;) {
    const auto left = static_cast<std::uint16_t>(ranks - done);
    const auto block = static_cast<std::uint16_t>(1 + prng.below(left));
    const auto rank = static_cast<std::uint16_t>(first + done);
    const bool is_switch = prng.chance(0.7) || (is_top && block == left && !has_switch);
    if (is_switch) {
      below.push_back(random_below(
          rank, block, 1 + static_cast<int>(prng.below(static_cast<std::uint64_t>(levels - 1))), false, prng));
    } else {
      for (std::uint16_t each = 0; each < block; ++each)
        below.push_back(worker(static_cast<std::uint16_t>(rank + each)));
    }
    has_switch = has_switch || is_switch;
    done = static_cast<std::uint16_t>(done + block);
  }
  return switch_above(std::move(below));
}

}  // namespace

Shape random_shape(std::uint16_t ranks, int levels, Prng& prng) {
  return random_below(0, ranks, levels, true, prng);
}

std::vector<float> fold_by(const Shape& shape, const std::vector<std::vector<float>>& widened) {
  if (!shape.is_switch()) return widened[shape.first_rank];
  std::vector<std::vector<float>> parts;
  for (const Shape& each : shape.below) parts.push_back(fold_by(each, widened));
  return pairwise(parts, 0, parts.size());
}

TreeWorld::TreeWorld(const Shape& shape, TreeOptions options)
    : options_(options), prng_(options.seed), ranks_(shape.ranks), workers_(shape.ranks) {
  build(shape, std::nullopt, new_ports(std::size_t{1} << prng_.below(std::bit_width(options_.shards_max))));
}

std::vector<std::uint16_t> TreeWorld::new_ports(std::size_t count) {
  std::vector<std::uint16_t> ports;
  for (std::size_t i = 0; i < count; ++i) ports.push_back(next_port_++);
  return ports;
}

std::unique_ptr<link::Link> TreeWorld::open(std::uint16_t port, bool with_faults) {
  if (!with_faults) return network_.open(port);
  link::Faults faults = options_.faults;
  faults.seed = options_.seed * 1000 + port;
  return link::inject_faults(network_.open(port), faults, [this] { return time_; });
}

void TreeWorld::build(const Shape& shape, std::optional<switching::Above> above, std::vector<std::uint16_t> ports) {
  wire::Lease lease;
  lease.job = next_job_++;
  lease.epoch = static_cast<std::uint16_t>(100 + lease.job);
  lease.world = static_cast<std::uint16_t>(shape.below.size());
  lease.slots = options_.slots;
  lease.shards = static_cast<std::uint16_t>(ports.size());
  lease.payload_bytes = options_.payload_bytes;
  lease.bfp = options_.bfp;
  lease.first_chunk = options_.first_chunk;
  lease.is_tree = true;
  if (options_.tagged) {  // each hop's own
    lease.keys.emplace(wire::TagKey{std::byte{7}, static_cast<std::byte>(lease.job)}, lease.first_chunk);
  }

  std::vector<link::Address> shards;
  for (const std::uint16_t port : ports) shards.push_back({0, port});
  switching::Admission admission{lease, {}, {}, {{}, above}};
  std::vector<std::pair<const Shape*, std::vector<std::uint16_t>>> switches_below;
  std::vector<std::pair<std::uint16_t, std::uint16_t>> workers_below;
  for (const Shape& each : shape.below) {
    const auto its =
        new_ports(each.is_switch() ? std::size_t{1} << prng_.below(std::bit_width(options_.shards_max)) : 1);
    admission.workers.push_back({0, its.front()});
    admission.tree.contributors.push_back({each.first_rank, each.ranks, {}});
    if (each.is_switch()) {
      admission.tree.contributors.back().udp_ports = its;
      switches_below.emplace_back(&each, its);
    } else {
      workers_below.emplace_back(each.first_rank, its.front());
    }
  }
  const bool has_faults = above.has_value();
  const auto on_mismatch = [this](std::uint16_t, std::uint16_t, int, std::string what) {
    mismatches_.push_back(std::move(what));
  };
  std::vector<std::unique_ptr<link::Link>> links;
  for (const std::uint16_t port : ports) links.push_back(open(port, has_faults));
  Switch& box = switches_.emplace_back();
  const bool is_of_frames = prng_.chance(options_.frames);
  if (is_of_frames) box.frames = std::make_unique<FrameSwitch>(std::move(links), admission, on_mismatch);
  for (std::uint16_t index = 0; index < lease.shards && !is_of_frames; ++index) {
    box.jobs.push_back(std::make_unique<switching::ShardJob>(admission, index));
    box.paths.push_back(std::make_unique<switching::SwitchPath>(std::move(links[index]), kTreeJobsMax, on_mismatch));
    box.paths.back()->place(lease.job, box.jobs.back().get());
  }
  wire::Lease of_rank = lease;
  of_rank.world = ranks_;
  for (const auto& [rank, port] : workers_below) {
    Worker& worker = workers_[rank];
    worker.link = open(port, true);
    worker.path = std::make_unique<group::DataPath>(of_rank, rank, group::WindowOptions{}, *worker.link, shards);
  }
  for (const auto& [each, its] : switches_below) build(*each, switching::Above{lease, each->first_rank, shards}, its);
}

void TreeWorld::submit(std::uint16_t rank, const group::CollectiveRequest& request) {
  Worker& worker = workers_[rank];
  wire::Lease lease;  // what an operation needs of it
  lease.world = ranks_;
  lease.payload_bytes = options_.payload_bytes;
  lease.bfp = options_.bfp;
  lease.is_tree = true;
  worker.path->submit(std::make_unique<group::Operation>(++worker.submitted, request, lease, rank), time_);
}

switching::JobCounters TreeWorld::counters(std::size_t number) const {
  switching::JobCounters sum;
  for (const auto& job : switches_[number].jobs) sum += job->snapshot();
  const auto& frames = switches_[number].frames;
  for (std::uint16_t shard = 0; frames && shard < frames->shards(); ++shard) sum += frames->job(shard).snapshot();
  return sum;
}

std::uint64_t TreeWorld::drops(std::size_t number, switching::DropReason reason) const {
  std::uint64_t sum = 0;
  for (const auto& path : switches_[number].paths) sum += path->drops(reason);
  const auto& frames = switches_[number].frames;
  return frames ? frames->drops(reason) : sum;
}

bool TreeWorld::is_done() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.is_stopped || worker.finished == worker.submitted; });
}

bool TreeWorld::run(Nanoseconds limit) {
  const Nanoseconds end = time_ + limit;
  const auto moved = [&] {
    std::uint64_t sum = 0;
    for (const Worker& worker : workers_)
      sum += worker.link->stats().sent_packets + worker.link->stats().received_packets;
    for (const Switch& box : switches_) {
      for (const auto& path : box.paths)
        sum += path->link().stats().sent_packets + path->link().stats().received_packets;
      if (box.frames) sum += box.frames->moved_packets();
    }
    return sum;
  };
  while (!is_done()) {
    if (time_ > end) return false;
    const std::uint64_t before = moved();
    for (Worker& worker : workers_) {
      if (worker.is_stopped) continue;
      worker.path->pump(time_);
      worker.finished += worker.path->take_finished().size();
    }
    for (Switch& box : switches_) {
      if (box.is_stopped) continue;
      for (const auto& path : box.paths) path->pump(time_);
      if (box.frames) box.frames->pump(time_);
    }
    if (moved() != before) {
      time_ += 10 * kMicrosecond;
      continue;
    }
    Nanoseconds next = kNever;
    for (const Worker& worker : workers_) {
      if (!worker.is_stopped) next = std::min(next, worker.path->deadline());
    }
    for (const Switch& box : switches_) {
      for (const auto& path : box.paths) {
        if (!box.is_stopped) next = std::min(next, path->link().deadline());
      }
      if (box.frames && !box.is_stopped) next = std::min(next, box.frames->deadline());
    }
    if (is_done()) break;
    if (next == kNever || next > end) return false;
    time_ = std::max(time_ + kMicrosecond, next);
  }
  return true;
}

}  // namespace netfold::tests
