#include "group/via_peers/life_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "group/session.h"

namespace netfold::group {
namespace {

using nlohmann::json;

constexpr int kUsualConfirmations = 1 + 2 + 4 + 8 + 16;  // TCP waits twice as long after each packet sent again
constexpr Nanoseconds kQuestionPeriod = kSecond;

std::string line_of(const json& message) {
  return json_text(message) + "\n";
}

}  // namespace

LifeLines::LifeLines(int rank, int world, std::unique_ptr<link::PollSet> polls)
    : rank_(rank),
      polls_(std::move(polls)),
      peers_(static_cast<std::size_t>(world)),
      machines_(static_cast<std::size_t>(world)),
      standings_(static_cast<std::size_t>(world)) {}

void LifeLines::add(int rank, std::unique_ptr<link::ControlLink> line) {
  polls_->add(rank, line->descriptor());
  peer(rank).line = std::move(line);
}

void LifeLines::add(int rank, Line line, const std::string& group) {
  Peer& peer = this->peer(rank);
  if (line.move && line.move->group == group) {
    peer.arrival = std::move(line.move);
    peer.later = std::move(line.later);
    has_later_ = has_later_ || !peer.later.empty();
  } else {
    peer.awaited_move = group;
  }
  add(rank, std::move(line.link));
}

void LifeLines::keep(const std::vector<int>& ranks) {
  for (const int rank : ranks) peer(rank).is_kept = true;
}

std::optional<LifeLines::Line> LifeLines::take(int rank) {
  Peer& peer = this->peer(rank);
  if (!peer.line || !peer.is_kept || peer.has_left || peer.has_closed) return std::nullopt;
  polls_->remove(rank, peer.line->descriptor());
  return Line{std::move(peer.line), std::exchange(peer.departure, {}), std::exchange(peer.later, {})};
}

void LifeLines::say_move(int to, const Move& move) {
  tell(to, line_of({{"kind", "move"},
                    {"group", move.group},
                    {"data", move.data},
                    {"messages", move.messages},
                    {"proof", move.proof}}));
}

// What a line of an earlier group brought before this group was there.
Result<void> LifeLines::hear_later(Nanoseconds now) {
  has_later_ = false;
  Result<void> heard;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (peer(rank).departure) continue;
    for (const std::string& line : std::exchange(peer(rank).later, {})) {
      if (auto said = hear(rank, line, now); heard) heard = said;
    }
  }
  return heard;
}

void LifeLines::look_for_confirmations(Nanoseconds now) {
  if (now < next_look_) return;
  next_look_ = now + kLookPeriod;
  for (Peer& peer : peers_) {
    if (!peer.line || peer.is_gone() || !peer.line->has_unconfirmed()) {
      peer.unconfirmed_since.reset();
    } else if (!peer.unconfirmed_since) {
      peer.unconfirmed_since = now;
    }
  }
}

template <class IsSilent>
std::optional<int> LifeLines::cut_off_of(IsSilent is_silent) const {
  std::set<IpAddress> others, silent;
  std::optional<int> first;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (machine_of(rank) == machine_of(rank_) || peer(rank).is_gone()) continue;
    others.insert(machine_of(rank));
    if (!peer(rank).unconfirmed_since || !is_silent(peer(rank))) continue;
    silent.insert(machine_of(rank));
    if (!first) first = rank;
  }
  return silent.size() > 1 && silent == others ? std::optional(rank_) : first;
}

std::optional<int> LifeLines::cut_off(Nanoseconds for_at_least, Nanoseconds now) const {
  return cut_off_of([&](const Peer& peer) { return now - *peer.unconfirmed_since >= for_at_least; });
}

std::optional<int> LifeLines::silent(Nanoseconds now) const {
  return cut_off_of([&](const Peer& peer) {
    return now - *peer.unconfirmed_since >= kUsualConfirmations * peer.line->usual_confirmation();
  });
}

void LifeLines::ask(Nanoseconds now) {
  if (now < next_question_) return;
  next_question_ = now + kQuestionPeriod;
  const std::string line = line_of({{"kind", "here"}});  // the kernel's confirmation is the answer
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (machine_of(rank) == machine_of(rank_) || peer(rank).is_gone()) continue;
    if (!peer(rank).unconfirmed_since) tell(rank, line);
  }
}

Result<void> LifeLines::listen(Nanoseconds now) {
  look_for_confirmations(now);
  if (has_later_) {
    if (auto heard = hear_later(now); !heard) return heard;
  }
  for (const int rank : polls_->ready()) {
    Peer& peer = this->peer(rank);
    Result<void> heard;
    const auto outcome = peer.line->read([&](std::string_view line) {
      if (auto said = hear(rank, line, now); heard) heard = said;  // a move may follow an error
    });
    // It closes when it sees this. If it closed at once, a word that comes later would make its kernel reset the
    // connection, and "leave" could be lost.
    if (peer.has_left) peer.line->shut_down_writing();
    if (!heard) return heard;
    if (outcome.state == link::ControlLink::State::kOpen) continue;
    polls_->remove(rank, peer.line->descriptor());
    peer.has_closed = true;
    if (outcome.state == link::ControlLink::State::kGarbage) {
      return fail(ErrorCode::kPeerFailed, fmt::format("rank {} {}", rank, outcome.why), rank);
    }
    if (peer.has_left) continue;
    return fail(ErrorCode::kPeerFailed, fmt::format("rank {} died or was cut off: it {}", rank, outcome.why), rank);
  }
  return {};
}

Result<void> LifeLines::hear(int rank, std::string_view line, Nanoseconds now) {
  Peer& peer = this->peer(rank);
  const json message = parse_json(line);
  const auto kind = message.is_object() ? message.value("kind", json()) : json();
  if (kind != "move" && !peer.awaited_move.empty()) return {};  // said in the group before
  if (kind != "move" && peer.departure) return peer.later.emplace_back(line), Result<void>();
  const auto number = [&](const char* name) {
    const auto found = message.find(name);
    return found != message.end() && found->is_number_integer() ? found->get<int>() : kNoRank;
  };
  const auto text = [&](const char* name) {
    const auto found = message.find(name);
    return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (kind == "move") {
    const auto position = [&](const char* name) {
      const auto found = message.find(name);
      return found != message.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    };
    Move move{text("group"), position("data"), position("messages"), text("proof")};
    if (peer.awaited_move.empty()) {
      peer.departure = std::move(move);
    } else if (move.group == peer.awaited_move) {
      peer.awaited_move.clear();
      peer.arrival = std::move(move);
    }
  } else if (kind == "shares") {
    peer.sharing = Sharing{message.value("all", json()) == json(true), text("door"), text("token")};
  } else if (kind == "leave") {
    peer.has_left = true;
  } else if (kind == "waiting") {
    const auto ranks = message.value("for", json());
    auto& [waits_for, moved_at] = standings_[static_cast<std::size_t>(rank)];
    waits_for.clear();
    for (const json& each : ranks.is_array() ? ranks : json::array()) {
      if (each.is_number_integer()) waits_for.push_back(each.get<int>());
    }
    if (waits_for.empty()) moved_at = now;  // it waited, and moves on
  } else if (kind == "note") {
    const auto numbers = message.value("numbers", json());
    Note note{rank, {}};
    for (const json& each : numbers.is_array() ? numbers : json::array()) {
      if (each.is_number_unsigned()) note.numbers.push_back(each.get<std::uint64_t>());
    }
    notes_.push_back(std::move(note));
  } else if (kind == "moving") {
    standings_[static_cast<std::size_t>(rank)].moved_at = now;
  } else if (kind == "failed") {
    failed_by_ = number("by") == kNoRank ? rank : number("by");
    // What is blamed on us looks from here like the fault of whoever says so.
    is_blamed_ = number("rank") == rank_;
    const int blamed = is_blamed_ ? failed_by_ : number("rank");
    const int code = std::clamp(number("code"), 0, static_cast<int>(ErrorCode::kSystem));
    std::string said = text("text").empty() ? "it failed" : text("text");
    if (failed_by_ == rank) said += fmt::format(" (says rank {})", rank);
    return fail(static_cast<ErrorCode>(code), std::move(said), blamed == kNoRank ? rank : blamed);
  }
  return {};
}

void LifeLines::tell(int rank, const std::string& line) {
  Peer& peer = this->peer(rank);
  if (peer.line && !peer.has_left) peer.line->write(line);  // if it is gone, reading shows it
}

void LifeLines::tell_all(const std::string& line) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) tell(rank, line);
}

bool LifeLines::somebody_waits() const {
  return std::any_of(standings_.begin(), standings_.end(), [](const Standing& s) { return !s.waits_for.empty(); });
}

void LifeLines::say_sharing(int to, const Sharing& sharing) {
  json message = {{"kind", "shares"}, {"all", sharing.all}};
  if (!sharing.token.empty()) message["door"] = sharing.receiver, message["token"] = sharing.token;
  tell(to, line_of(message));
}

void LifeLines::say_waiting(const std::vector<int>& for_ranks) {
  tell_all(line_of({{"kind", "waiting"}, {"for", for_ranks}}));
}

void LifeLines::say_moving() {
  tell_all(line_of({{"kind", "moving"}}));
}

void LifeLines::say_note(const std::vector<std::uint64_t>& numbers) {
  tell_all(line_of({{"kind", "note"}, {"numbers", numbers}}));
}

void LifeLines::say_note_to(int rank, const std::vector<std::uint64_t>& numbers) {
  tell(rank, line_of({{"kind", "note"}, {"numbers", numbers}}));
}

void LifeLines::say_failed(const Error& error) {
  // The others hear what was said, and not what it looks like from here: all must name the same rank.
  const int blamed = is_blamed_ && error.rank == failed_by_ ? rank_ : error.rank;
  tell_all(line_of({{"kind", "failed"},
                    {"code", static_cast<int>(error.code)},
                    {"rank", blamed},
                    {"by", failed_by_ == kNoRank ? rank_ : failed_by_},
                    {"text", error.message}}));
}

void LifeLines::leave() {
  const std::string line = line_of({{"kind", "leave"}});
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = this->peer(rank);
    if (!peer.line || peer.is_kept) continue;
    tell(rank, line);
    peer.line->shut_down_writing();
  }
}

bool LifeLines::have_all_closed(Nanoseconds now) {
  while (!listen(now)) {  // what else they say, or how they end, no longer matters
  }
  return std::ranges::all_of(peers_, [](const Peer& peer) { return !peer.line || peer.is_kept || peer.has_closed; });
}

}  // namespace netfold::group
