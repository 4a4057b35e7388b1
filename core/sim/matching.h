// Every rank's transfers, each send matched with its receive: the n-th send from one rank to another goes with the n-th
// receive there (schedule.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "sim/collective.h"

namespace netfold::sim {

// One transfer as one of its two ends has it.
struct End {
  int message;  // which one; the same at both ends
  int step;
  schedule::Transfer transfer;

  bool is_send() const { return transfer.action == schedule::Action::kSend; }
};

struct Message {
  int sender, receiver;
  int sender_step, receiver_step;
  std::size_t offset, count;
  bool is_folded;
};

struct Matched {
  std::vector<std::vector<End>> ends;  // by rank, in the order of its steps
  std::vector<Message> messages;
  std::size_t in_network_count = 0;  // elements that the switch folds for all
};

Result<Matched> match(int world, const Schedules& schedules);

}  // namespace netfold::sim
