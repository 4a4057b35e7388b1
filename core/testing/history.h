// What happened in a simulated cluster: for people, line by line, and for the checkers, who was in trouble when.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "testing/timeline.h"

namespace netfold::testing {

// The switch, or a rank of a job.
struct Party {
  int job = -1, rank = -1;  // -1: the switch
  auto operator<=>(const Party&) const = default;
};
constexpr Party kTheSwitch{};

// Troubles that a checker asks for by name.
namespace trouble {
inline constexpr const char *kDisagreeing = "disagreeing", *kCut = "cut", *kCutOff = "cut off", *kPaused = "paused",
                            *kUnnoticed = "unnoticed";
}  // namespace trouble

struct Violation {
  std::string checker, what;
};

class History {
 public:
  explicit History(const Timeline& timeline, std::function<void(const std::string&)> on_line = {})
      : timeline_(timeline), start_(timeline.now()), on_line_(std::move(on_line)) {}

  Nanoseconds now() const { return timeline_.now(); }

  template <class... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    if (!on_line_) return;
    on_line_(fmt::format("{:12.6f}  {}", to_seconds(timeline_.now() - start_),
                         fmt::format(format, std::forward<Args>(args)...)));
  }

  // From now until end_trouble(), this party may rightly be blamed. Troubles of one party may overlap.
  void begin_trouble(Party party, const char* what) {
    note("{}: {}", to_string(party), what);
    troubles_[party].push_back({timeline_.now(), kNever, what});
  }
  void end_trouble(Party party, const char* what) {
    for (Trouble& trouble : troubles_[party]) {
      if (trouble.to != kNever || trouble.what != what) continue;
      note("{}: no longer {}", to_string(party), what);
      trouble.to = timeline_.now();
      return;
    }
  }
  // In this one, if `what` is given.
  bool was_in_trouble(Party party, Nanoseconds since, std::string_view what = {}) const {
    const auto found = troubles_.find(party);
    if (found == troubles_.end()) return false;
    for (const Trouble& trouble : found->second) {
      if (trouble.to >= since && (what.empty() || trouble.what == what)) return true;
    }
    return false;
  }

  // The first one counts: what follows may follow from it.
  void violate(const char* checker, std::string what) {
    note("violation of {}: {}", checker, what);
    if (!violation_) violation_ = Violation{checker, std::move(what)};
  }
  const std::optional<Violation>& violation() const { return violation_; }

  static std::string to_string(Party party) {
    return party == kTheSwitch ? "the switch" : fmt::format("rank {} of job-{}", party.rank, party.job);
  }

 private:
  struct Trouble {
    Nanoseconds from, to;
    std::string what;
  };

  const Timeline& timeline_;
  Nanoseconds start_;
  std::function<void(const std::string&)> on_line_;
  std::map<Party, std::vector<Trouble>> troubles_;
  std::optional<Violation> violation_;
};

}  // namespace netfold::testing
