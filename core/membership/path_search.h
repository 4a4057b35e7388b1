// Finds the largest packet that passes on a path in both directions, as RFC 8899 does: probes of several sizes are sent
// at once, and each comes back as it is. A hop that drops large packets says nothing, so a size counts as too large
// after several probes without an answer. A pure state machine: answers and the time go in, sizes to probe come out.
//
// The first round probes sizes that are common. Each further round probes sizes between the largest that passed and the
// smallest that did not. A path that carries the largest size at all takes one round trip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace netfold::membership {

class PathSearch {
 public:
  struct Probe {
    std::uint32_t number;
    std::uint32_t size_bytes;  // of the packet, with the headers of IP and UDP
  };

  // `most_bytes`: the MTU of the interface, or as much as is of use.
  PathSearch(std::uint32_t most_bytes, Nanoseconds now);

  // The next probe that is to be sent now, if there is one.
  std::optional<Probe> next(Nanoseconds now);
  void on_answer(std::uint32_t number, Nanoseconds now);

  // Once the search is over: the largest size that passed; 0 if nothing came back.
  std::optional<std::uint32_t> found(Nanoseconds now);
  Nanoseconds deadline() const;  // when next() or found() has something new though no answer came

 private:
  void begin_round(std::vector<std::uint32_t> sizes, Nanoseconds now);
  bool begin_next_round(Nanoseconds now);
  Nanoseconds pause() const;

  std::uint32_t most_, passed_ = 0, too_large_;
  std::vector<std::uint32_t> sizes_;  // of this round, ascending
  std::size_t at_ = 0;                // the next of them to send; all are sent: kTries times in all
  int tries_ = 0;
  std::vector<std::uint32_t> sent_;     // sizes by number
  std::vector<Nanoseconds> sent_when_;  // the same
  Nanoseconds round_trip_ = 0, next_at_, ends_at_;
  bool is_over_ = false;
};

}  // namespace netfold::membership
