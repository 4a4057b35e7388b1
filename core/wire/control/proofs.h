// Proofs that a process knows the secret, and the tag keys that follow from it: BLAKE2b-256 keyed by the secret
// (PROTOCOL.md, "Secrets"). The secret itself is neither kept nor sent. Its hash is kept, and wiped at the end.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "wire/control/messages.h"
#include "wire/tag.h"

namespace netfold::control {

// Two ranks that meet, and what each drew by lot for this meeting.
struct RankPair {
  int asks = 0, answers = 0, world = 1;
  Nonce asked = {}, answered = {};
  bool asker_tags = false, answerer_tags = false;  // each wants tags on what they send each other
};

class Secret {
 public:
  // Nothing for an empty text: there is no secret then.
  static std::optional<Secret> from(std::string_view text);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  // The proof of a worker to a switch that has a secret. It covers everything the switch acts on.
  Proof join_proof(const Nonce& switch_nonce, const Join& join) const;
  // The token of a worker to a switch without a secret, so that workers of one job know each other.
  Proof token(std::string_view job) const;
  // The proof of the switch: it knows the secret too, and sent these values.
  Proof admit_proof(const Nonce& worker_nonce, const Admitted& admitted) const;
  // The proof of a rank to another rank without a switch, each in its part of the conversation
  // (group/via_peers/handshake.h).
  Proof rank_proof(std::string_view part, const RankPair& pair) const;
  // The key of the tags on what one of the two sends in a stream of theirs ("data", "messages").
  wire::TagKey stream_key(std::string_view stream, const RankPair& pair, bool by_asker) const;
  // The key of the data packets' tags in one epoch.
  wire::TagKey tag_key(const Nonce& salt, std::uint16_t job_id, std::uint16_t epoch) const;

 private:
  Secret() = default;

  std::array<unsigned char, 32> key_ = {};
};

bool equal_in_constant_time(const Proof& a, const Proof& b);
bool equal_in_constant_time(std::string_view a, std::string_view b);  // proofs as text

}  // namespace netfold::control
