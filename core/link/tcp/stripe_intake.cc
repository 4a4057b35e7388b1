#include "link/tcp/stripe_intake.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::link {
namespace {

constexpr std::size_t kStripeTagBytes = sizeof(Tag);
constexpr std::size_t kIntakeBytes = kStripeHeaderBytes + kStripeBytesMax + kStripeTagBytes + kStripeHeaderBytes;

std::size_t bytes_on_wire(const StripeHeader& header) {
  return kStripeHeaderBytes + header.size + kStripeTagBytes;
}

}  // namespace

StripeIntake::StripeIntake() : memory_(std::make_unique_for_overwrite<std::byte[]>(kIntakeBytes)) {}

std::optional<StripeHeader> StripeIntake::header() const {
  if (here() < kStripeHeaderBytes) return std::nullopt;
  StripeHeader header;
  std::memcpy(&header, first(), kStripeHeaderBytes);
  return header;
}

// Of a long stripe the rest and the header after it, so that little is moved to the front afterwards. While no header
// is known, all that has come: a short stripe then takes one call to the kernel.
std::span<std::byte> StripeIntake::room() {
  assert(state_ == State::kPartial);
  if (begin_ > 0) {
    std::memmove(memory_.get(), first(), here());
    end_ = here();
    begin_ = 0;
  }
  const auto next = header();
  const std::size_t wanted = next && next->is_valid() ? bytes_on_wire(*next) + kStripeHeaderBytes : kIntakeBytes;
  return {memory_.get() + end_, std::max(wanted, end_) - end_};
}

StripeIntake::State StripeIntake::look(const Tags& tags) {
  const auto next = header();
  if (state_ != State::kPartial || !next) return state_;
  if (!next->is_valid()) return state_ = State::kWrong;
  if (here() < bytes_on_wire(*next)) return state_;
  const std::span all(first(), bytes_on_wire(*next));
  const bool is_right = tags.is_right(all.first(kStripeHeaderBytes), bytes(), all.last(kStripeTagBytes));
  return state_ = is_right ? State::kWhole : State::kWrong;
}

Range StripeIntake::range() const {
  const StripeHeader stripe = *header();
  return {stripe.position, stripe.position + stripe.size};
}

std::span<const std::byte> StripeIntake::bytes() const {
  return {first() + kStripeHeaderBytes, header()->size};
}

void StripeIntake::drop() {
  begin_ += bytes_on_wire(*header());
  state_ = State::kPartial;
}

}  // namespace netfold::link
