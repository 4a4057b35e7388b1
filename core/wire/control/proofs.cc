#include "wire/control/proofs.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::control {
namespace {

template <class Bytes>
std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Hashes fields so that no two sequences of fields share their bytes: a text goes with its length before it, a number
// as 4 bytes in network order, nonces have one length.
class FieldHash {
 public:
  FieldHash(const std::array<unsigned char, 32>& key, std::string_view label) {
    crypto_generichash_init(&state_, key.data(), key.size(), sizeof(Proof));
    add(label);
  }
  ~FieldHash() { sodium_memzero(&state_, sizeof state_); }

  void add(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    update(text.data(), text.size());
  }
  void add(const Nonce& nonce) { update(nonce.data(), nonce.size()); }
  void add(std::uint32_t number) {
    const unsigned char bytes[4] = {static_cast<unsigned char>(number >> 24), static_cast<unsigned char>(number >> 16),
                                    static_cast<unsigned char>(number >> 8), static_cast<unsigned char>(number)};
    update(bytes, sizeof bytes);
  }

  void add(const RankPair& pair) {
    for (const int number : {pair.asks, pair.answers, pair.world}) add(static_cast<std::uint32_t>(number));
    add(pair.asked);
    add(pair.answered);
    if (!pair.asker_tags && !pair.answerer_tags) return;
    for (const bool tags : {pair.asker_tags, pair.answerer_tags}) add(tags ? 1u : 0u);
  }

  Proof finish() {
    Proof proof;
    crypto_generichash_final(&state_, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
    return proof;
  }

 private:
  void update(const void* bytes, std::size_t count) {
    crypto_generichash_update(&state_, static_cast<const unsigned char*>(bytes), count);
  }

  crypto_generichash_state state_;
};

wire::TagKey key_from(Proof whole) {
  wire::TagKey key;
  std::copy_n(whole.begin(), key.size(), key.begin());
  sodium_memzero(whole.data(), whole.size());
  return key;
}

}  // namespace

std::optional<Secret> Secret::from(std::string_view text) {
  if (text.empty()) return std::nullopt;
  [[maybe_unused]] const int ready = sodium_init();
  assert(ready >= 0);
  Secret secret;
  crypto_generichash(secret.key_.data(), secret.key_.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return secret;
}

Secret::~Secret() {
  sodium_memzero(key_.data(), key_.size());
}

Proof Secret::join_proof(const Nonce& switch_nonce, const Join& join) const {
  FieldHash hash(key_, "netfold-join");
  hash.add(switch_nonce);
  hash.add(join.nonce);
  hash.add(join.job);
  for (const std::uint32_t number :
       {std::uint32_t{join.world}, std::uint32_t{join.rank}, std::uint32_t{join.udp_port}, join.mtu,
        std::uint32_t{join.bfp.block}, std::uint32_t{join.bfp.mantissa}, join.window}) {
    hash.add(number);
  }
  if (join.is_hosted) hash.add(1u);
  if (!join.below) return hash.finish();
  hash.add(static_cast<std::uint32_t>(join.below->udp_ports.size()));
  for (const std::uint16_t port : join.below->udp_ports) hash.add(std::uint32_t{port});
  hash.add(std::uint32_t{join.below->port});
  hash.add(text_of(join.below->id));
  hash.add(join.token ? text_of(*join.token) : std::string_view());
  return hash.finish();
}

Proof Secret::token(std::string_view job) const {
  FieldHash hash(key_, "netfold-job");
  hash.add(job);
  return hash.finish();
}

Proof Secret::admit_proof(const Nonce& worker_nonce, const Admitted& admitted) const {
  FieldHash hash(key_, "netfold-admit");
  hash.add(worker_nonce);
  hash.add(admitted.salt);
  for (const std::uint32_t number : {std::uint32_t{admitted.job_id}, std::uint32_t{admitted.epoch}, admitted.slots,
                                     std::uint32_t{admitted.payload_bytes}, std::uint32_t{admitted.tagged ? 1u : 0u},
                                     static_cast<std::uint32_t>(admitted.udp_ports.size())}) {
    hash.add(number);
  }
  for (const std::uint16_t port : admitted.udp_ports) hash.add(std::uint32_t{port});
  if (admitted.data_ip && admitted.data_ip->is_v4()) hash.add(admitted.data_ip->v4());
  if (admitted.data_ip && !admitted.data_ip->is_v4()) hash.add(text_of(admitted.data_ip->v6()));
  if (admitted.in_tree) hash.add(admitted.above);
  return hash.finish();
}

Proof Secret::rank_proof(std::string_view part, const RankPair& pair) const {
  FieldHash hash(key_, "netfold-rank");
  hash.add(part);
  hash.add(pair);
  return hash.finish();
}

wire::TagKey Secret::stream_key(std::string_view stream, const RankPair& pair, bool by_asker) const {
  FieldHash hash(key_, "netfold-stream");
  hash.add(stream);
  hash.add(pair);
  hash.add(by_asker ? 1u : 0u);
  return key_from(hash.finish());
}

wire::TagKey Secret::tag_key(const Nonce& salt, std::uint16_t job_id, std::uint16_t epoch) const {
  FieldHash hash(key_, "netfold-tag");
  hash.add(salt);
  hash.add(std::uint32_t{job_id});
  hash.add(std::uint32_t{epoch});
  return key_from(hash.finish());
}

bool equal_in_constant_time(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace netfold::control
