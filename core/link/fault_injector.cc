#include "link/fault_injector.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "base/prng.h"

namespace netfold::link {
namespace {

// Held packets are looked after this often, not one by one: a wake-up each would cost more than the fault itself.
constexpr Nanoseconds kReleasePeriod = 200 * kMicrosecond;

class FaultInjector final : public Link {
 public:
  FaultInjector(std::unique_ptr<Link> inner, Faults faults, std::function<Nanoseconds()> clock)
      : inner_(std::move(inner)),
        faults_(faults),
        clock_(std::move(clock)),
        sending_(faults.seed),
        receiving_(~faults.seed) {}

  std::size_t send(std::span<const Outgoing> batch) override;
  std::span<const Incoming> receive(std::size_t most) override;
  Nanoseconds deadline() const override { return std::min(next_release(), inner_->deadline()); }
  int descriptor() const override { return inner_->descriptor(); }
  Address local_address() const override { return inner_->local_address(); }
  const LinkStats& stats() const override { return inner_->stats(); }

 private:
  struct Held {
    Nanoseconds release;
    Address peer;
    std::vector<std::byte> bytes;
  };
  enum class Fate { kPass, kLose, kDuplicate, kHold };

  Fate fate(Prng& prng) const;
  Nanoseconds release_time(Prng& prng) const {
    return clock_() + static_cast<Nanoseconds>(prng.below(static_cast<std::uint64_t>(faults_.hold_max) + 1));
  }
  Nanoseconds next_release() const;
  void release_sends();

  std::unique_ptr<Link> inner_;
  Faults faults_;
  std::function<Nanoseconds()> clock_;
  Prng sending_, receiving_;  // one a direction: how these interleave is not ours to repeat
  std::vector<Held> held_sends_, held_receives_;
  std::vector<std::vector<std::byte>> released_;  // backs what receive() handed out last
  std::vector<Outgoing> passing_;
  std::vector<Incoming> received_;
};

FaultInjector::Fate FaultInjector::fate(Prng& prng) const {
  const double draw = prng.unit();
  if (draw < faults_.loss) return Fate::kLose;
  if (draw < faults_.loss + faults_.duplicate) return Fate::kDuplicate;
  if (draw < faults_.loss + faults_.duplicate + faults_.reorder) return Fate::kHold;
  return Fate::kPass;
}

Nanoseconds FaultInjector::next_release() const {
  Nanoseconds earliest = kNever;
  for (const auto* held : {&held_sends_, &held_receives_}) {
    for (const Held& packet : *held) earliest = std::min(earliest, packet.release);
  }
  return earliest == kNever ? kNever : (earliest / kReleasePeriod + 1) * kReleasePeriod;
}

void FaultInjector::release_sends() {
  const Nanoseconds time = clock_();
  std::erase_if(held_sends_, [&](const Held& packet) {
    if (packet.release > time) return false;
    const Outgoing datagram{packet.peer, packet.bytes, {}, {}};
    inner_->send(std::span(&datagram, 1));  // a full link loses it: it was to be troubled anyway
    return true;
  });
}

std::size_t FaultInjector::send(std::span<const Outgoing> batch) {
  release_sends();
  passing_.clear();
  for (const Outgoing& datagram : batch) {
    switch (fate(sending_)) {
      case Fate::kLose: break;
      case Fate::kDuplicate: passing_.push_back(datagram); [[fallthrough]];
      case Fate::kPass: passing_.push_back(datagram); break;
      case Fate::kHold: {
        Held& held = held_sends_.emplace_back(release_time(sending_), datagram.to, std::vector<std::byte>{});
        for (const auto piece : {datagram.head, datagram.body, datagram.tail}) {
          held.bytes.insert(held.bytes.end(), piece.begin(), piece.end());
        }
      }
    }
  }
  // A short send of the inner link is taken as loss: fates were drawn, and drawing them again would not be repeatable.
  std::span<const Outgoing> rest = passing_;
  while (!rest.empty()) {
    const std::size_t taken = inner_->send(rest);
    if (taken == 0) break;
    rest = rest.subspan(taken);
  }
  return batch.size();
}

std::span<const Incoming> FaultInjector::receive(std::size_t most) {
  release_sends();
  received_.clear();
  released_.clear();
  const Nanoseconds time = clock_();
  for (const Incoming& datagram : inner_->receive(most)) {
    switch (fate(receiving_)) {
      case Fate::kLose: break;
      case Fate::kDuplicate: received_.push_back(datagram); [[fallthrough]];
      case Fate::kPass: received_.push_back(datagram); break;
      case Fate::kHold:
        held_receives_.push_back(
            {release_time(receiving_), datagram.from, {datagram.bytes.begin(), datagram.bytes.end()}});
    }
  }
  const auto first_due = std::stable_partition(held_receives_.begin(), held_receives_.end(),
                                               [&](const Held& packet) { return packet.release > time; });
  for (auto packet = first_due; packet != held_receives_.end(); ++packet) {
    released_.push_back(std::move(packet->bytes));
    received_.push_back({packet->peer, released_.back()});
  }
  held_receives_.erase(first_due, held_receives_.end());
  return received_;
}

}  // namespace

Result<Faults> parse_faults(const std::string& description) {
  Faults faults;
  std::istringstream parts(description);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    double value = -1;
    if (equals != std::string::npos) {
      std::istringstream number(part.substr(equals + 1));
      if (!(number >> value) || !number.eof()) value = -1;
    }
    double* const probability = name == "loss"        ? &faults.loss
                                : name == "duplicate" ? &faults.duplicate
                                : name == "reorder"   ? &faults.reorder
                                                      : nullptr;
    if (probability != nullptr && value >= 0 && value < 1) {
      *probability = value;
    } else if (name == "hold_s" && value >= 0 && value <= 1) {
      faults.hold_max = from_seconds(value);
    } else if (name == "seed" && value >= 0) {
      faults.seed = static_cast<std::uint64_t>(value);
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is not a fault: write for example loss=0.01,duplicate=0.01,reorder=0.05,"
                              "hold_s=0.001,seed=7, probabilities below 1",
                              part));
    }
  }
  if (faults.loss + faults.duplicate + faults.reorder >= 1) {
    return fail(ErrorCode::kInvalidArgument,
                "the probabilities of loss, duplicate and reorder must stay below 1 together");
  }
  return faults;
}

std::unique_ptr<Link> inject_faults(std::unique_ptr<Link> inner, Faults faults, std::function<Nanoseconds()> clock) {
  return std::make_unique<FaultInjector>(std::move(inner), faults, std::move(clock));
}

}  // namespace netfold::link
