// The tags on what two ranks send each other over a network (link/tags.h), under keys that follow from their
// secret and from what both drew when they met.
#pragma once

#include <memory>
#include <string_view>

#include "link/tags.h"
#include "wire/control/proofs.h"

namespace netfold::group {

// `stream`: of the pair's, "data", "messages" or "life line". `asks`: for the rank that asked, not for the one that
// answered.
std::unique_ptr<link::Tags> rank_tags(const control::Secret& secret, std::string_view stream,
                                      const control::RankPair& pair, bool asks);

}  // namespace netfold::group
