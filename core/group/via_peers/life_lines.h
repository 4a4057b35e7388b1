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
#include "base/ip_address.h"
#include "base/result.h"
#include "group/via_peers/waits.h"
#include "link/control_link.h"
#include "link/poll_set.h"

namespace netfold::group {

class LifeLines {
 public:
  LifeLines(int rank, int world, std::unique_ptr<link::PollSet> polls);

  void add(int rank, std::unique_ptr<link::ControlLink> line);

  // A rank goes on in another group over the connections that it has: where in its streams that group's bytes begin.
  struct Move {
    std::string group;
    std::uint64_t data = 0, messages = 0;
    std::string proof = {};  // of that group's secret; "" without one
  };
  // A line that outlives its group.
  struct Line {
    std::unique_ptr<link::ControlLink> link;
    std::optional<Move> move = {};        // that the other rank has announced,
    std::vector<std::string> later = {};  // and what it has said since
  };
  // These ranks' lines outlive this group: leave() neither tells them nor closes them.
  void keep(const std::vector<int>& ranks);
  // Null if it has ended, or was not kept.
  std::optional<Line> take(int rank);
  // Of an earlier group: what is said over it before the rank moves to `group` means nothing here.
  void add(int rank, Line line, const std::string& group);
  void say_move(int to, const Move& move);
  const std::optional<Move>& arrival_of(int rank) const { return peer(rank).arrival; }  // in this group
  bool has(int rank) const { return peer(rank).line != nullptr; }

  // Reads what the others say. An error if one of them is gone or has failed.
  Result<void> listen(Nanoseconds now);
  bool has_left(int rank) const { return peer(rank).is_gone(); }
  // By rank; this rank's own are the caller's.
  const std::vector<Standing>& standings() const { return standings_; }
  bool somebody_waits() const;
  // By rank the address of its machine.
  void set_machines(std::vector<IpAddress> machines) { machines_ = std::move(machines); }
  // The rank that seems to be cut off, by what was not confirmed for so long: the first one of a machine that does not
  // confirm, or this rank, if there are several other machines and none confirms.
  std::optional<int> cut_off(Nanoseconds for_at_least, Nanoseconds now) const;
  // The same, by what was not confirmed for much longer than is usual on its way: as long as TCP takes to send a packet
  // again five times. ask() gives each other machine something to confirm, at most once a second.
  void ask(Nanoseconds now);
  std::optional<int> silent(Nanoseconds now) const;
  bool somebody_has_left() const { return std::ranges::any_of(peers_, &Peer::is_gone); }

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
  void say_note_to(int rank, const std::vector<std::uint64_t>& numbers);
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }

  int descriptor() const { return polls_->descriptor(); }  // readable when a rank has said something

 private:
  struct Peer {
    std::unique_ptr<link::ControlLink> line;
    std::optional<Sharing> sharing;
    bool has_left = false, has_closed = false, is_kept = false;
    std::string awaited_move;                      // to this group; "": the rank is here
    std::optional<Move> arrival, departure = {};   // its moves to this group and from it
    std::vector<std::string> later;                // said since it has moved, or before this group read it
    std::optional<Nanoseconds> unconfirmed_since;  // as far as was looked
    bool is_gone() const { return has_left || departure; }
  };
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void look_for_confirmations(Nanoseconds now);
  const IpAddress& machine_of(int rank) const { return machines_[static_cast<std::size_t>(rank)]; }
  template <class IsSilent>
  std::optional<int> cut_off_of(IsSilent is_silent) const;
  Result<void> hear_later(Nanoseconds now);
  Result<void> hear(int rank, std::string_view line, Nanoseconds now);
  void tell(int rank, const std::string& line);
  void tell_all(const std::string& line);

  int rank_;
  std::unique_ptr<link::PollSet> polls_;
  std::vector<Peer> peers_;
  std::vector<IpAddress> machines_;
  std::vector<Standing> standings_;
  std::vector<Note> notes_;
  bool has_later_ = false;     // lines are here that came before this group
  Nanoseconds next_look_ = 0;  // for confirmations
  Nanoseconds next_question_ = 0;
  int failed_by_ = kNoRank;  // the rank that said first that the group has failed
  bool is_blamed_ = false;   // by that rank
};

}  // namespace netfold::group
