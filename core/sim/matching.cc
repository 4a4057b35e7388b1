#include "sim/matching.h"

#include <fmt/core.h>

#include <algorithm>

#include "sim/index.h"

namespace netfold::sim {
namespace {

// The messages to one rank, sorted by sender and, of one sender, by turn.
struct Inbox {
  std::vector<int> messages;
  std::vector<int> taken;  // of the sender whose messages begin there

  int take(int sender, const std::vector<Message>& all) {
    const auto first = std::lower_bound(messages.begin(), messages.end(), sender,
                                        [&](int message, int wanted) { return all[index(message)].sender < wanted; });
    const auto place = static_cast<std::size_t>(first - messages.begin());
    if (place == messages.size()) return kNone;
    const std::size_t turn = place + index(taken[place]++);
    if (turn >= messages.size() || all[index(messages[turn])].sender != sender) return kNone;
    return messages[turn];
  }

  static constexpr int kNone = -1;
};

Result<void> read_steps(int rank, int world, const schedule::Steps& steps, Matched& matched) {
  auto& ends = matched.ends[index(rank)];
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const int step = static_cast<int>(number);
    for (const schedule::Transfer& transfer : steps[number]) {
      if (transfer.peer == schedule::kSwitch) {
        matched.in_network_count = std::max(matched.in_network_count, transfer.count);
        continue;
      }
      if (transfer.peer < 0 || transfer.peer >= world || transfer.peer == rank) {
        return wrong(fmt::format("rank {}'s step {} names rank {}: peers are the other ranks of {}", rank, step,
                                 transfer.peer, world),
                     rank);
      }
      int message = Inbox::kNone;
      if (transfer.action == schedule::Action::kSend) {
        message = static_cast<int>(matched.messages.size());
        matched.messages.push_back({rank, transfer.peer, step, 0, transfer.offset, transfer.count, false});
      }
      ends.push_back({message, step, transfer});
    }
  }
  return {};
}

}  // namespace

Result<Matched> match(int world, const Schedules& schedules) {
  Matched matched;
  matched.ends.resize(index(world));
  for (int rank = 0; rank < world; ++rank) {
    const auto steps = schedules(rank);
    if (!steps) return tl::unexpected(steps.error());
    if (auto read = read_steps(rank, world, *steps, matched); !read) return tl::unexpected(read.error());
  }
  std::vector<Inbox> inboxes(index(world));
  for (std::size_t i = 0; i < matched.messages.size(); ++i) {
    Inbox& inbox = inboxes[index(matched.messages[i].receiver)];
    inbox.messages.push_back(static_cast<int>(i));
    inbox.taken.push_back(0);
  }
  std::size_t received = 0;
  for (int rank = 0; rank < world; ++rank) {
    for (End& end : matched.ends[index(rank)]) {
      if (end.is_send()) continue;
      end.message = inboxes[index(rank)].take(end.transfer.peer, matched.messages);
      if (end.message == Inbox::kNone) {
        return wrong(fmt::format("rank {} waits in step {} for rank {}, which sends it nothing more: give that "
                                 "rank a send, or leave the receive out",
                                 rank, end.step, end.transfer.peer),
                     rank);
      }
      Message& message = matched.messages[index(end.message)];
      message.receiver_step = end.step;
      message.is_folded = end.transfer.action == schedule::Action::kFold;
      if (message.count != end.transfer.count) {
        return wrong(fmt::format("rank {} sends {} elements in step {}, rank {} expects {} in step {}", message.sender,
                                 message.count, message.sender_step, rank, end.transfer.count, end.step),
                     rank);
      }
      ++received;
    }
  }
  if (received == matched.messages.size()) return matched;
  for (Inbox& inbox : inboxes) {
    for (std::size_t i = 0; i < inbox.messages.size(); ++i) {
      const Message& message = matched.messages[index(inbox.messages[i])];
      if (inbox.take(message.sender, matched.messages) == Inbox::kNone) continue;
      return wrong(fmt::format("rank {} sends more messages to rank {} than that receives: give it a "
                               "receive, or leave a send out",
                               message.sender, message.receiver),
                   message.sender);
    }
  }
  return matched;
}

}  // namespace netfold::sim
