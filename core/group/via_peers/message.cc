#include "group/via_peers/message.h"

#include <fmt/core.h>

#include "numbers/format.h"
#include "schedule/schedule.h"

namespace netfold::group {

// The values may be anything: another rank sent them.
std::string in_words(const Terms& terms) {
  const auto all = schedule::algorithms();
  const bool is_bfp = terms.format == static_cast<std::uint8_t>(numbers::Format::kBfp);
  return fmt::format("{} {} of {} {} elements as {}{} by {}{}", schedule::name_of(terms.collective), terms.number,
                     terms.elements, numbers::name_of(static_cast<numbers::ElementType>(terms.type)),
                     numbers::name_of(static_cast<numbers::Format>(terms.format)),
                     is_bfp ? fmt::format("<{}, {}>", terms.block, terms.mantissa) : "",
                     terms.algorithm < all.size() ? all[terms.algorithm].name : "an unknown algorithm",
                     terms.average != 0 ? " for their average" : "");
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
