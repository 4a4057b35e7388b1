#include "group/via_peers/message.h"

#include <fmt/core.h>

#include "numbers/format.h"
#include "schedule/schedule.h"

namespace netfold::group {

// The values may be anything: another rank sent them.
std::string in_words(const Terms& terms) {
  const auto all = schedule::algorithms();
  const bool is_bfp = terms.format == static_cast<std::uint8_t>(numbers::Format::kBfp);
  const char* const type = numbers::name_of(static_cast<numbers::ElementType>(terms.type));
  if (schedule::is_exchange(terms.collective)) {
    return fmt::format("{} {} of {} elements", schedule::name_of(terms.collective), terms.number, type);
  }
  const char* const what = terms.average != 0                            ? " for their average"
                           : terms.operation == numbers::Operation::kSum ? ""
                                                                         : numbers::name_of(terms.operation);
  const bool is_other = terms.average == 0 && terms.operation != numbers::Operation::kSum;
  const bool as_it_lies = terms.format == static_cast<std::uint8_t>(numbers::Format::kNone);
  return fmt::format("{} {} of {} {} elements{}{}{} by {}{}{}", schedule::name_of(terms.collective), terms.number,
                     terms.elements, type, as_it_lies ? "" : " as ",
                     as_it_lies ? "" : numbers::name_of(static_cast<numbers::Format>(terms.format)),
                     is_bfp ? fmt::format("<{}, {}>", terms.block, terms.mantissa) : "",
                     terms.algorithm < all.size() ? all[terms.algorithm].name : "an unknown algorithm",
                     is_other ? " for their " : "", what);
}

tl::unexpected<Error> disagreement(int rank, const Terms& its, int own_rank, const Terms& own,
                                   std::string_view remark) {
  return fail(
      ErrorCode::kMismatch,
      fmt::format("rank {} is at {}, rank {} at {}{}: ranks must submit the same collectives in the same order, "
                  "with the same options",
                  rank, in_words(its), own_rank, in_words(own), remark),
      rank);
}

}  // namespace netfold::group
