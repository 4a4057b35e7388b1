#include "switch/changes.h"

#include <algorithm>
#include <span>

#include "switch/ethernet/headers.h"
#include "switch/roce_in_frame.h"
#include "wire/bytes.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr std::size_t kSourceAt = 6;
// Of the transport header, of RETH, of the aggregation header.
constexpr std::size_t kQueuePairAt = 5, kPsnAt = 9, kLengthAt = 12, kFlagsAt = 3;
// Of the network header: the GIDs of v1; IPv4 and UDP of v2.
constexpr std::size_t kGrhLengthAt = 4, kGidsAt = 8, kServiceAt = 1, kTotalAt = 2, kIdAt = 4, kFragmentAt = 6,
                      kTimeToLiveAt = 8, kProtocolAt = 9, kAddressesAt = 12, kUdpFromAt = 20, kUdpToAt = 22,
                      kUdpLengthAt = 24;
constexpr std::uint64_t kWorkersLimit = 32;
constexpr std::byte kWithOptions{0x46};  // IPv4 with six words of header

class Change {
 public:
  Change(Bytes& frame, const JobOptions& job, Prng& prng)
      : frame_(frame),
        job_(job),
        prng_(prng),
        network_(content_at(frame)),
        transport_(network_ + roce::network_bytes(job.version)),
        reth_(transport_ + roce::kBthBytes),
        aggregation_(reth_ + roce::kRethBytes) {}

  void any_field(bool is_first);
  bool is_comparable() const;

 private:
  void field_of_roce(bool is_first);
  void field_of_ipv4();
  void options_or_version();
  void workers();
  void shorten();
  void flip(std::size_t at, std::size_t bytes) {
    frame_[at + prng_.below(bytes)] ^= static_cast<std::byte>(1u << prng_.below(8));
  }
  std::span<std::byte> packet() { return std::span(frame_).subspan(network_); }
  void set_checksum() {
    if (job_.version == roce::Version::kV2) set_ipv4_checksum(packet().first(roce::kIpv4Bytes));
  }
  void seal() {
    set_checksum();
    roce::seal(packet());
  }

  Bytes& frame_;
  const JobOptions& job_;
  Prng& prng_;
  std::size_t network_, transport_, reth_, aggregation_;
};

void Change::any_field(bool is_first) {
  if (job_.version == roce::Version::kV2 && prng_.chance(0.4)) return field_of_ipv4();
  field_of_roce(is_first);
}

void Change::field_of_roce(bool is_first) {
  const std::size_t numbers = reth_ + roce::kImmediateBytes;  // in all packets but the first
  const bool is_v1 = job_.version == roce::Version::kV1;
  switch (prng_.below(is_first ? 12 : 8)) {
    case 0: return flip(frame_.size() - roce::kIcrcBytes - 8, 8 + roce::kIcrcBytes);  // the ICRC sees it
    case 1: flip(transport_ + kPsnAt, 3); break;
    case 2: flip(kSourceAt, 6), frame_[kSourceAt] &= std::byte{0xfe}; break;
    case 3: is_v1 ? flip(network_ + kGidsAt, 32) : flip(network_ + kAddressesAt, 8); break;
    case 4: flip(transport_ + kQueuePairAt, 3); break;
    case 5: frame_[transport_] = static_cast<std::byte>(6 + prng_.below(4)); break;  // opcode
    case 6: flip(numbers, frame_.size() - numbers); break;                           // numbers; a bfp exponent
    case 7: return shorten();
    case 8: flip(reth_ + kLengthAt, 4); break;
    case 9: workers(); break;
    default: flip(aggregation_, roce::kAggregationBytes); break;
  }
  seal();
}

// Another number of workers, or none where others say it. In v1 such a header is wrong.
void Change::workers() {
  std::byte& flags = frame_[aggregation_ + kFlagsAt];
  const auto said = static_cast<std::uint64_t>(flags) >> roce::kWorkersShift;
  const std::uint64_t right = said != 0 ? 0 : job_.ports.size();
  const std::uint64_t now = prng_.chance(0.5) ? right : prng_.below(kWorkersLimit);
  flags = (flags & std::byte{roce::kEndsTensor | roce::kSummed}) | static_cast<std::byte>(now << roce::kWorkersShift);
}

// The packet ends early by its lengths and its ICRC, and padding follows.
void Change::shorten() {
  const auto opcode = static_cast<roce::Opcode>(frame_[transport_]);
  const std::size_t payload_bytes = packet().size() - roce::header_bytes(opcode, job_.version) - roce::kIcrcBytes;
  const std::size_t cut = 4 * (1 + prng_.below(payload_bytes / 4));
  const auto shorten_at = [&](std::size_t at) {
    wire::put_big(packet(), at, static_cast<std::uint16_t>(wire::get_big<std::uint16_t>(packet(), at) - cut));
  };
  if (job_.version == roce::Version::kV1) {
    shorten_at(kGrhLengthAt);
  } else {
    shorten_at(kTotalAt);
    shorten_at(kUdpLengthAt);
  }
  set_checksum();
  roce::seal(packet().first(packet().size() - cut));
}

// Such frames are forwarded, or stay right: the ICRC does not cover what routers change. Checksums are right, because
// the hardware does not read them.
void Change::field_of_ipv4() {
  switch (prng_.below(8)) {
    case 0: flip(network_ + kServiceAt, 1); return set_checksum();
    case 1: flip(network_ + kTimeToLiveAt, 1); return set_checksum();
    case 2: flip(network_ + kUdpToAt, 2); return seal();
    case 3: flip(network_ + kFragmentAt, 2); return seal();
    case 4: flip(network_ + kProtocolAt, 1); return seal();
    case 5: return options_or_version();
    case 6: return set_udp_checksum(packet());
    default: flip(network_ + (prng_.chance(0.5) ? kUdpFromAt : kIdAt), 2); return seal();
  }
}

void Change::options_or_version() {
  if (prng_.chance(0.5)) {
    flip(network_, 1);
    return set_checksum();
  }
  packet()[0] = kWithOptions;
  set_ipv4_checksum(packet().first(roce::kIpv4Bytes + 4));
}

bool Change::is_comparable() const {
  if (std::equal(frame_.begin(), frame_.begin() + 6, frame_.begin() + kSourceAt)) return false;  // to itself
  if (frame_[transport_] != static_cast<std::byte>(roce::Opcode::kWriteFirst)) return true;
  // The software says that a packet without the whole of RETH is malformed; the hardware does not fold it.
  if (frame_.size() < aggregation_ + roce::kIcrcBytes) return false;
  roce::AggregationHeader header;
  const auto payload = std::span(frame_).subspan(aggregation_);
  if (roce::parse(payload, header, job_.version) != roce::AggregationError::kNone) return true;
  if (header.epoch > job_.epoch) return false;  // it would end the current epoch
  // The hardware has only one shape of blocks.
  return header.format != numbers::Format::kBfp || (header.block == 16 && header.mantissa == 7);
}

}  // namespace

bool change_one_field(Bytes& frame, const JobOptions& job, bool is_first, Prng& prng) {
  Change change(frame, job, prng);
  change.any_field(is_first);
  return change.is_comparable();
}

}  // namespace netfold::rtl
