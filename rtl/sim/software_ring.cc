#include "software_ring.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <deque>

#include "numbers/kernels.h"
#include "numbers/tables.h"
#include "schedule/schedule.h"

namespace netfold::rtl {
namespace {

using schedule::Action;
using Message = std::vector<float>;

constexpr std::size_t kAlign = 16;  // elements: software cuts segments at multiples of it; at least a block

struct Rank {
  schedule::Steps steps;
  std::vector<float> buffer;
  std::size_t step = 0;
  bool has_sent = false;
  std::deque<Message> inbox;  // from the left
};

// The value after encoding and decoding.
Message travelled(const float* from, std::size_t count, bool bfp, numbers::BfpShape shape) {
  Message message(from, from + count);
  if (!bfp) return message;
  const numbers::Kernels& with = *numbers::reference_kernels();
  std::vector<std::byte> wire(numbers::encoded_bytes({numbers::Format::kBfp, shape}, count));
  with.bfp_encode(shape, from, count, wire.data());
  with.bfp_decode(shape, wire.data(), count, message.data());
  return message;
}

// True if the rank advanced. A step sends the buffer's content at its begin, and ends when its part has arrived.
bool advance(std::vector<Rank>& ranks, std::size_t index, bool bfp, numbers::BfpShape shape) {
  Rank& rank = ranks[index];
  if (rank.step == rank.steps.size()) return false;
  const schedule::Step& step = rank.steps[rank.step];
  bool moved = false;
  for (const auto& transfer : step) {
    if (transfer.action != Action::kSend || rank.has_sent) continue;
    const Message message = travelled(rank.buffer.data() + transfer.offset, transfer.count, bfp, shape);
    ranks[static_cast<std::size_t>(transfer.peer)].inbox.push_back(message);
    moved = true;
  }
  rank.has_sent = true;
  for (const auto& transfer : step) {
    if (transfer.action == Action::kSend) continue;
    if (rank.inbox.empty()) return moved;
    const Message& message = rank.inbox.front();
    assert(message.size() == transfer.count);
    for (std::size_t i = 0; i < transfer.count; ++i) {
      float& own = rank.buffer[transfer.offset + i];
      own = transfer.action == Action::kFold ? own + message[i] : message[i];
    }
    rank.inbox.pop_front();
  }
  ++rank.step;
  rank.has_sent = false;
  return true;
}

}  // namespace

std::vector<float> software_ring(const std::vector<std::vector<float>>& inputs, bool bfp, numbers::BfpShape shape) {
  const std::size_t count = inputs.front().size();
  std::vector<Rank> ranks(inputs.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    schedule::Request request;
    request.world = static_cast<int>(ranks.size());
    request.rank = static_cast<int>(i);
    request.count = count;
    request.align = bfp ? std::max<std::size_t>(kAlign, shape.block) : kAlign;
    ranks[i].steps = schedule::make(request).value();
    ranks[i].buffer = inputs[i];
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) moved = advance(ranks, i, bfp, shape) || moved;
  }
  // A sum is the value that its owner's neighbours read. Rounding is idempotent, so every rank's rounded copy is equal.
  return travelled(ranks.front().buffer.data(), count, bfp, shape);
}

std::size_t differences(const float* left, const float* right, std::size_t count) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool both_nan = std::isnan(left[i]) && std::isnan(right[i]);
    if (!both_nan && std::memcmp(left + i, right + i, sizeof(float)) != 0) ++found;
  }
  return found;
}

}  // namespace netfold::rtl
