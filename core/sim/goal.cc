#include "sim/goal.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/index.h"

namespace netfold::sim {
namespace {

constexpr double kSecondsPerNanosecond = 1e-9;

std::vector<std::string_view> words_of(std::string_view line) {
  if (const auto comment = line.find("//"); comment != line.npos) line = line.substr(0, comment);
  std::vector<std::string_view> words;
  while (true) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == line.npos) return words;
    line.remove_prefix(first);
    const auto past = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, past));
    line.remove_prefix(past);
  }
}

std::optional<std::int64_t> number_in(std::string_view word, std::string_view unit = "") {
  if (!word.ends_with(unit)) return std::nullopt;
  word.remove_suffix(unit.size());
  std::int64_t number = 0;
  const auto [past, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || past != word.data() + word.size() || number < 0) return std::nullopt;
  return number;
}

class Reader {
 public:
  Result<Workload> read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const auto end = std::min(text.find('\n'), text.size());
      const auto words = words_of(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (words.empty()) continue;
      if (auto done = read_line(words); !done) return tl::unexpected(done.error());
    }
    if (rank_ != kNobody) return wrong(fmt::format("the text ends inside rank {}: close it with '}}'", rank_));
    if (ranks_ < 1) return wrong("no 'num_ranks N': there are no ranks");
    for (const auto& [later, earlier, is_start] : requires_) {
      if (!is_start) {
        workload_.require(later, earlier);
        continue;
      }
      for (const auto& [other, before, other_is_start] : requires_) {
        if (other == earlier && !other_is_start) workload_.require(later, before);
      }
    }
    for (const auto& [key, waiting] : open_) {
      if (waiting.empty()) continue;
      line_ = waiting.front().line;
      const auto& [from, to, tag] = key;
      const bool is_send = workload_.tasks[static_cast<std::size_t>(waiting.front().task)].is_transfer();
      return wrong(is_send
                       ? fmt::format("rank {} never receives what rank {} sends it with tag {}", to, from, tag)
                       : fmt::format("rank {} waits for rank {}, which sends it nothing with tag {}", to, from, tag));
    }
    if (auto done = workload_.finish(); !done) return tl::unexpected(done.error());
    return std::move(workload_);
  }

 private:
  static constexpr int kNobody = -1;
  using Key = std::tuple<int, int, std::int64_t>;  // sender, receiver, tag
  struct Waiting {
    int task;
    int line;
    std::int64_t size_bytes;
  };
  struct Requires {
    int later, earlier;
    bool is_start;
  };
  using Words = std::vector<std::string_view>;

  tl::unexpected<Error> wrong(const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("GOAL, line {}: {}", line_, what));
  }

  Result<void> read_line(const Words& words) {
    if (words[0] == "num_ranks") {
      const auto ranks = words.size() == 2 ? number_in(words[1]) : std::nullopt;
      if (!ranks || *ranks < 1 || *ranks > INT32_MAX) return wrong("write 'num_ranks N', N above 0");
      ranks_ = static_cast<int>(*ranks);
      return {};
    }
    if (words[0] == "rank") {
      const auto rank = words.size() >= 2 ? number_in(words[1]) : std::nullopt;
      if (!rank || *rank >= ranks_) return wrong(fmt::format("ranks are 0 to {}: num_ranks says so", ranks_ - 1));
      if (rank_ != kNobody) return wrong(fmt::format("rank {} is not closed yet: write '}}' before", rank_));
      rank_ = static_cast<int>(*rank);
      labels_.clear();
      return {};
    }
    if (words[0] == "{") return {};
    if (words[0] == "}") {
      rank_ = kNobody;
      return {};
    }
    if (rank_ == kNobody) return wrong("operations stand between 'rank N {' and '}'");
    if (words.size() == 3 && (words[1] == "requires" || words[1] == "irequires")) return read_requires(words);
    return read_operation(words);
  }

  Result<void> read_requires(const Words& words) {
    const auto later = labels_.find(std::string(words[0])), earlier = labels_.find(std::string(words[2]));
    for (const auto& [found, name] : {std::pair(later, words[0]), std::pair(earlier, words[2])}) {
      if (found == labels_.end()) return wrong(fmt::format("rank {} has no '{}' above", rank_, name));
    }
    requires_.push_back({later->second, earlier->second, words[1] == "irequires"});
    return {};
  }

  Result<void> read_operation(Words words) {
    std::string label;
    if (words[0].ends_with(':')) {
      label = words[0].substr(0, words[0].size() - 1);
      words.erase(words.begin());
    }
    if (words.size() >= 2 && words[0] == "calc") {
      const auto nanoseconds = number_in(words[1]);
      if (!nanoseconds) return wrong("write 'calc N', N nanoseconds");
      return name(label, workload_.add({.delay_s = static_cast<double>(*nanoseconds) * kSecondsPerNanosecond}));
    }
    const bool sends = words[0] == "send";
    if (!sends && words[0] != "recv") {
      return wrong(fmt::format("'{}' is not an operation: send, recv or calc", words[0]));
    }
    const auto size_bytes = words.size() >= 4 ? number_in(words[1], "b") : std::nullopt;
    const auto peer = words.size() >= 4 && words[2] == (sends ? "to" : "from") ? number_in(words[3]) : std::nullopt;
    if (!size_bytes || !peer) return wrong(fmt::format("write '{} Nb {} RANK tag T'", words[0], sends ? "to" : "from"));
    if (*peer >= ranks_ || *peer == rank_) {
      return wrong(fmt::format("rank {} cannot reach {}: peers are the other ranks of {}", rank_, *peer, ranks_));
    }
    std::int64_t tag = 0;
    for (std::size_t i = 4; i + 1 < words.size(); ++i) {
      if (words[i] == "tag") tag = number_in(words[i + 1]).value_or(0);
    }
    return meet(label, sends, *size_bytes, static_cast<int>(*peer), tag);
  }

  Result<void> meet(const std::string& label, bool sends, std::int64_t size_bytes, int peer, std::int64_t tag) {
    const Key key = sends ? Key{rank_, peer, tag} : Key{peer, rank_, tag};
    Task task;
    if (sends) {
      task.sender = rank_;
      task.receiver = peer;
      task.size_bits = static_cast<double>(size_bytes) * kBitsPerByte;
    }
    const int own = workload_.add(task);
    auto& waiting = open_[key];
    const bool is_met =
        !waiting.empty() && workload_.tasks[static_cast<std::size_t>(waiting.front().task)].is_transfer() != sends;
    if (!is_met) {
      waiting.push_back({own, line_, size_bytes});
      return name(label, own);
    }
    const Waiting other = waiting.front();
    waiting.erase(waiting.begin());
    if (other.size_bytes != size_bytes) {
      return wrong(
          fmt::format("{} bytes meet {} of line {}: both ends say alike", size_bytes, other.size_bytes, other.line));
    }
    workload_.require(sends ? other.task : own, sends ? own : other.task);
    return name(label, own);
  }

  Result<void> name(const std::string& label, int task) {
    if (!label.empty() && !labels_.emplace(label, task).second) {
      return wrong(fmt::format("rank {} has '{}' twice", rank_, label));
    }
    return {};
  }

  Workload workload_;
  int line_ = 0, ranks_ = 0, rank_ = kNobody;
  std::unordered_map<std::string, int> labels_;  // of this rank
  std::vector<Requires> requires_;
  std::map<Key, std::vector<Waiting>> open_;
};

}  // namespace

Result<Workload> read_goal(std::string_view text) {
  return Reader().read(text);
}

}  // namespace netfold::sim
