// Ranks that sum through a switch and among themselves at once, in virtual time: real sessions, a real switch that may
// die and come back, and a simulated network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "group/collective_request.h"
#include "testing/meeting.h"
#include "testing/surroundings.h"
#include "testing/switch_process.h"

namespace netfold::tests {

class BothWorld {
 public:
  static constexpr Nanoseconds kTimeout = 20 * kSecond;  // of the ranks

  // One stream between ranks carries `stream_bytes_s`. `weather`: of datagrams.
  BothWorld(std::uint16_t world, double stream_bytes_s, std::uint64_t seed, const testing::Weather& weather = {},
            std::size_t switches = 1);
  ~BothWorld();

  // Every rank hands over an all-reduce, reduce-scatter or all-gather by `split` of random elements, each a little
  // later than the others. `request` is without memory.
  void submit(const group::CollectiveRequest& request);
  // From now on every rank hands a collective over only when the one before it is over, as a script that waits for
  // each.
  void hand_over_one_by_one() { is_one_by_one_ = true; }
  // From now on every rank leaves when all that it was given is over, as a script does at its end.
  void leave_when_done() { are_leaving_ = true; }
  // Until all are over on every rank; false after `limit`, or if a rank has failed.
  bool run_until_done(Nanoseconds limit);
  // Until every rank has left; false as above.
  bool run_until_left(Nanoseconds limit);
  // False if a rank has failed.
  bool run_for(Nanoseconds time);
  // Until one rank has finished something that this other one has not; false as above.
  bool run_until_ahead(int rank, int of, Nanoseconds limit);
  void kill_switch(std::size_t at = 0) { switches_[at].reset(); }
  void start_switch(std::size_t at = 0);
  // From now on its link carries so much, each way, or as much as before again.
  void narrow_switch(double bytes_s, std::size_t at = 0);
  void widen_switch(std::size_t at = 0);
  std::size_t switches() const { return switches_.size(); }
  // They do nothing for this time.
  void pause_switch(Nanoseconds time, std::size_t at = 0);
  void pause(int rank, Nanoseconds time);
  // From this rank to a switch, or the other way, nothing passes any more, or all does again.
  void block(int rank, bool is_outward, bool is_blocked, std::size_t at = 0);
  // Nothing comes to this rank any more. Its own packets still arrive.
  void deafen(int rank);
  // This rank does nothing any more, and its machine still confirms what comes.
  void stop(int rank);
  // Packets of the first switch do not arrive any more.
  void silence_switch();

  // Of what is over, and was not looked at before: how many results have a wrong bit.
  int wrong_results();
  std::uint64_t folded_chunks(std::size_t at) const { return switches_[at]->folded_chunks(); }
  // A counter of each rank.
  std::vector<std::uint64_t> counters(const char* name) const;
  Nanoseconds now() const { return around_.timeline.now(); }
  const std::optional<Error>& failure() const { return failure_; }

 private:
  class Rank;
  struct Collective {
    group::CollectiveRequest request;
    std::vector<std::vector<float>> in, out;  // by rank
  };

  template <class Happened>
  bool run_until(Happened has_happened, Nanoseconds limit);
  bool are_all_done() const;
  std::uint32_t ip_of(int rank) const;
  std::vector<std::byte> expected(const Collective& collective, std::size_t rank) const;

  const testing::Plan plan_;
  testing::Surroundings around_;
  testing::Meeting meeting_;
  std::vector<std::unique_ptr<testing::SwitchProcess>> switches_;
  std::uint64_t switch_lives_ = 0;
  bool is_one_by_one_ = false, are_leaving_ = false;
  std::vector<std::unique_ptr<Collective>> collectives_;  // in the order of submission
  std::size_t looked_at_ = 0;
  std::optional<Error> failure_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace netfold::tests
