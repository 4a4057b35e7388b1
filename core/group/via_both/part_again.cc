#include "group/via_both/part_again.h"

#include <algorithm>
#include <cstring>

#include "group/via_peers/messages.h"
#include "numbers/codec.h"
#include "numbers/fold.h"

namespace netfold::group {
namespace {

constexpr std::size_t kFoldedAtOnce = 128 * numbers::kBlockMax;  // elements: the fold's working memory is of this size

CollectiveRequest message_of(int peer, std::uint64_t part, bool is_sum, std::size_t size_bytes) {
  CollectiveRequest message;
  message.peer = peer;
  message.tag = Messages::kOwnTags | part << 1 | (is_sum ? 1 : 0);
  message.type = numbers::ElementType::kUint8;
  message.format = numbers::Format::kNone;
  message.count = size_bytes;
  return message;
}

}  // namespace

PartAgain::PartAgain(const KeptPart& part, int rank, int world, std::uint64_t number)
    : part_(part), rank_(rank), world_(world), number_(number) {
  const CollectiveRequest& request = part_.request;
  const std::size_t ranks = static_cast<std::size_t>(world), blocks = request.count / numbers::kBlockMax;
  Slice next{0, 0, 0, 0};
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    if (folds() && spreads()) {
      const std::size_t end = owner + 1 == ranks ? request.count : (owner + 1) * blocks / ranks * numbers::kBlockMax;
      next.count = end - next.first;
    } else {  // each owner has a part of its own
      next.first = owner * request.stride();
      next.count = request.count;
    }
    next.size_bytes = on_the_wire(next.count);
    slices_.push_back(next);
    next.first += next.count;
    next.first_byte += next.size_bytes;
  }
  sums_ = make_buffer(next.first_byte);
}

std::size_t PartAgain::on_the_wire(std::size_t elements) const {
  const CollectiveRequest& request = part_.request;
  return folds() ? numbers::encoded_bytes({request.format, request.bfp}, elements) : request.bytes_of(elements);
}

Ticket PartAgain::send(int to, bool is_sum, const std::byte* bytes, std::size_t size_bytes,
                       const Submit& submit) const {
  CollectiveRequest message = message_of(to, number_, is_sum, size_bytes);
  message.collective = schedule::Collective::kSend;
  message.in = bytes;
  return submit(message);
}

Ticket PartAgain::receive(int from, bool is_sum, std::byte* to, std::size_t size_bytes, const Submit& submit) const {
  CollectiveRequest message = message_of(from, number_, is_sum, size_bytes);
  message.collective = schedule::Collective::kReceive;
  message.out = to;
  return submit(message);
}

void PartAgain::begin(const Submit& submit) {
  const std::size_t own_bytes = own().size_bytes;
  if (folds()) received_ = make_buffer(own_bytes * static_cast<std::size_t>(world_));
  for (int other = 0; other < world_; ++other) {
    if (other == rank_) continue;
    const auto place = static_cast<std::size_t>(other);
    const Slice& its = slices_[place];
    if (folds() && its.count > 0) {
      others_.push_back(send(other, false, contribution_to(its), its.size_bytes, submit));
    }
    if (folds() && own().count > 0) {
      contributions_.push_back(receive(other, false, received_.get() + place * own_bytes, own_bytes, submit));
    }
    if (spreads() && its.count > 0) {
      others_.push_back(receive(other, true, sums_.get() + its.first_byte, its.size_bytes, submit));
    }
  }
  if (contributions_.empty()) spread(submit);
}

bool PartAgain::end(Ticket message, const Submit& submit) {
  if (std::erase(contributions_, message) > 0) {
    if (contributions_.empty()) spread(submit);
  } else if (std::erase(others_, message) == 0) {
    return false;
  }
  if (is_over()) store();
  return true;
}

// Of the tensor, as it travels.
const std::byte* PartAgain::contribution_to(const Slice& slice) {
  const CollectiveRequest& request = part_.request;
  const auto* const in = static_cast<const std::byte*>(request.in) + request.bytes_of(slice.first);
  if (request.is_encoded || numbers::is_same(request.type, request.format)) return in;
  if (!encoded_) encoded_ = make_buffer(slices_.back().first_byte + slices_.back().size_bytes);
  std::byte* const to = encoded_.get() + slice.first_byte;
  numbers::encode({request.format, request.bfp}, request.type, in, slice.count, to);
  return to;
}

void PartAgain::fold() {
  const numbers::WireFormat wire{part_.request.format, part_.request.bfp};
  numbers::Folder folder(std::min(kFoldedAtOnce, own().count), static_cast<std::size_t>(world_));
  std::vector<const std::byte*> contributions;
  for (int rank = 0; rank < world_; ++rank) {
    const std::byte* const its = received_.get() + static_cast<std::size_t>(rank) * own().size_bytes;
    contributions.push_back(rank == rank_ ? contribution_to(own()) : its);
  }
  std::byte* to = sums_.get() + own().first_byte;
  for (std::size_t done = 0; done < own().count; done += kFoldedAtOnce) {
    const std::size_t count = std::min(kFoldedAtOnce, own().count - done);
    folder.fold(wire, contributions, count, to);
    const std::size_t size_bytes = on_the_wire(count);
    to += size_bytes;
    for (const std::byte*& each : contributions) each += size_bytes;
  }
}

// All have contributed to the own slice.
void PartAgain::spread(const Submit& submit) {
  if (own().count == 0) return;
  if (folds()) {
    fold();
  } else {
    std::memcpy(sums_.get() + own().first_byte, part_.request.in, own().size_bytes);
  }
  for (int other = 0; other < world_ && spreads(); ++other) {
    if (other == rank_) continue;
    others_.push_back(send(other, true, sums_.get() + own().first_byte, own().size_bytes, submit));
  }
}

void PartAgain::store() {
  if (part_.piece == KeptPart::kOver) return;
  const CollectiveRequest& request = part_.request;
  for (const Slice& each : slices_) {
    if (!spreads() && &each != &own()) continue;
    const std::byte* const sum = sums_.get() + each.first_byte;
    auto* const to = static_cast<std::byte*>(request.out) + (spreads() ? request.bytes_of(each.first) : 0);
    if (!folds() || request.is_encoded) {
      std::memcpy(to, sum, each.size_bytes);
    } else {
      numbers::decode({request.format, request.bfp}, request.type, sum, each.count, to,
                      request.average ? static_cast<std::uint32_t>(world_) : 1);
    }
  }
}

}  // namespace netfold::group
