// Who knows the secret, and the tag keys that follow from it: BLAKE2b-256 keyed by the secret (PROTOCOL.md, "Secrets").
// The secret itself is never kept nor sent; what is kept is its hash, wiped when it goes.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "jobs/messages.h"
#include "wire/tag.h"

namespace netfold::jobs {

// Two ranks that meet, and what each drew by lot for this meeting.
struct RankPair {
  int asks = 0, answers = 0, world = 1;
  Nonce asked = {}, answered = {};
};

class Secret {
 public:
  // Nothing for an empty text: there is no secret then.
  static std::optional<Secret> from(std::string_view text);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  // What a worker sends to a switch that has a secret: it covers everything the switch acts on.
  Proof join_proof(const Nonce& switch_nonce, const Join& join) const;
  // What a worker sends to a switch that has none, so that workers of one job know each other.
  Proof token(std::string_view job) const;
  // The switch's answer: it knows the secret too, and these are its words.
  Proof admit_proof(const Nonce& worker_nonce, const Admitted& admitted) const;
  // What ranks without a switch say to each other, each in its part of the conversation
  // (engine/collective/handshake.h).
  Proof rank_proof(std::string_view part, const RankPair& pair) const;
  // The key of the data packets' tags in one epoch.
  wire::TagKey tag_key(const Nonce& salt, std::uint16_t job_id, std::uint16_t epoch) const;

 private:
  Secret() = default;

  std::array<unsigned char, 32> key_ = {};
};

bool equal_in_constant_time(const Proof& a, const Proof& b);

}  // namespace netfold::jobs
