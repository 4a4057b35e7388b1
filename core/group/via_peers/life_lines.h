// A rank's life lines: what ranks say to each other beside the data, and what concerns the whole group. A rank leaves,
// a rank has failed, a rank waits for others or moves on; and notes between those that use the group. The end of a life
// line is the end of the peer. Pure: it is given links and the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "group/via_peers/waits.h"
#include "link/control_link.h"
#include "link/poll_set.h"

namespace netfold::group {

class LifeLines {
 public:
  LifeLines(int rank, int world, std::unique_ptr<link::PollSet> polls);

  void add(int rank, std::unique_ptr<link::ControlLink> line);
  bool has(int rank) const { return peer(rank).line != nullptr; }

  // Reads what the others say. An error if one of them is gone or has failed.
  Result<void> listen(Nanoseconds now);
  bool has_left(int rank) const { return peer(rank).has_left; }
  // By rank; this rank's own are the caller's.
  const std::vector<Standing>& standings() const { return standings_; }
  bool somebody_waits() const;
  bool somebody_has_left() const { return std::ranges::any_of(peers_, &Peer::has_left); }

  void say_waiting(const std::vector<int>& for_ranks);  // none: no more
  void say_moving();
  void say_failed(const Error& error);
  void leave();
  // After leave(): whether all others have heard it, or are gone.
  bool have_all_closed(Nanoseconds now);

  // Ranks of one machine agree on the memory that they share. A higher rank says whether it reaches all others over
  // shared memory, and where it receives a descriptor (link/shm/handover.h); rank 0 says whether all do.
  struct Sharing {
    bool all = false;
    std::string receiver, token;
  };
  const std::optional<Sharing>& sharing_of(int rank) const { return peer(rank).sharing; }
  void say_sharing(int to, const Sharing& sharing);

  // A few numbers for all others, whose meaning is the user's.
  struct Note {
    int from;
    std::vector<std::uint64_t> numbers;
  };
  void say_note(const std::vector<std::uint64_t>& numbers);
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }

  int descriptor() const { return polls_->descriptor(); }  // readable when a rank has said something

 private:
  struct Peer {
    std::unique_ptr<link::ControlLink> line;
    std::optional<Sharing> sharing;
    bool has_left = false, has_closed = false;
  };
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  Result<void> hear(int rank, std::string_view line, Nanoseconds now);
  void tell(int rank, const std::string& line);
  void tell_all(const std::string& line);

  int rank_;
  std::unique_ptr<link::PollSet> polls_;
  std::vector<Peer> peers_;
  std::vector<Standing> standings_;
  std::vector<Note> notes_;
  int failed_by_ = kNoRank;  // the rank that said first that the group has failed
};

}  // namespace netfold::group
