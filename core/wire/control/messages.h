// The control messages of PROTOCOL.md: their one reader and writer. One JSON object a line; parse() checks every field,
// so whoever holds a Message need not check again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ip_address.h"
#include "base/line_buffer.h"
#include "base/result.h"
#include "numbers/format.h"

namespace netfold::control {

constexpr std::uint16_t kControlVersion = 1;
constexpr std::uint16_t kControlVersionOldest = 1;  // of those that are spoken: one back, once there is one
constexpr std::uint16_t kWorldMax = 1024;           // workers in one job
constexpr std::uint16_t kHostRank = 0xffff;         // of a job's host, which folds nothing; -1 on the wire
constexpr std::size_t kJobNameBytesMax = 128;       // printable ASCII
constexpr std::size_t kJoinBytesMax = 1024;         // of the line, which is the first that a worker sends
constexpr std::size_t kReasonBytesMax = 1024;       // a longer reason is cut when it is sent
constexpr std::size_t kBelowPortsMax = 32;          // threads of a switch below another: its ports fit into a join
constexpr std::size_t kSwitchesMax = 1024;          // below another one, at all levels
constexpr std::size_t kAddressBytesMax = 300;       // "host:port"
constexpr std::uint32_t kMtuMin = 256;              // room for one bfp block of any shape, with header and tag
constexpr std::uint32_t kMtuMax = 65536;
constexpr std::uint32_t kSlotsMax = 65536;
constexpr std::uint16_t kPayloadBytesMax = 8192;
constexpr std::uint32_t kPathBytesMax = kPayloadBytesMax + 80;  // with header, tag, UDP and IPv6: more is of no use
constexpr double kBytesPerSecondMax = 1e15;
constexpr double kOfFairShareMax = 65536;  // times: so many jobs a switch never has
constexpr double kHeartbeatSecondsMin = 0.01, kHeartbeatSecondsMax = 3600;
constexpr double kTimeoutSecondsMin = 0.001, kTimeoutSecondsMax = 1e6;

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

using SwitchId = std::array<std::byte, 8>;  // drawn when a switch starts

struct Hello {
  std::uint16_t version = kControlVersion;
  Nonce nonce = {};
  bool auth = false;    // the worker must prove that it knows the switch's secret
  bool tagged = false;  // every data packet will carry a tag
  double heartbeat_s = 1.0;
  std::uint16_t path_port = 0;  // UDP: what comes there with this nonce is sent back (wire/path_probe.h); 0: none
  std::uint16_t oldest_version = kControlVersionOldest;  // that the switch speaks, too

  bool operator==(const Hello&) const = default;
};

// A switch adds this to its join at the switch above it.
struct Below {
  std::vector<std::uint16_t> udp_ports;  // one a shard of its own: chunk c comes from port c mod their number
  std::uint16_t port = 0;                // of its control connections, so that errors can name it
  SwitchId id = {};

  bool operator==(const Below&) const = default;
};

struct Join {
  std::uint16_t version = kControlVersion;
  std::string job;
  std::uint16_t world = 1;
  std::uint16_t rank = 0;
  std::uint16_t udp_port = 0;  // where the worker's datagrams come from and go to, at the connection's address
  std::uint32_t mtu = 1500;
  numbers::BfpShape bfp = {};
  std::uint32_t window = 0;  // chunks it wants outstanding at most; 0: the switch's default
  double timeout_s = 30;     // how long it waits for the others to join
  Nonce nonce = {};
  std::optional<Proof> proof = {};            // where the switch has a secret
  std::optional<Proof> token = {};            // where the switch has no secret: the job's first worker sets it
  bool is_hosted = false;                     // the job is not whole without its host; of a host itself always true
  std::optional<Below> below = std::nullopt;  // of a switch, which stands for several ranks; `rank` is one of them

  bool is_host() const { return rank == kHostRank; }
  bool operator==(const Join&) const = default;
};

// Of a switch to the switch above it, after its join and whenever they change: the ranks below it, and what it and they
// can take.
struct Ranks {
  std::vector<std::uint16_t> ranks;
  std::uint32_t window = 0;         // as Join's
  std::uint32_t slots = 0;          // for which it has memory
  std::uint16_t payload_bytes = 0;  // at most, on the way to those ranks
  std::vector<SwitchId> through;    // the sender and the switches below it: they must not be above it too

  bool operator==(const Ranks&) const = default;
};

struct Waiting {
  std::vector<std::uint16_t> present;

  bool operator==(const Waiting&) const = default;
};

struct Admitted {
  std::uint16_t job_id = 0;
  std::uint16_t epoch = 0;
  std::uint32_t slots = 512;
  std::uint16_t payload_bytes = 1456;
  std::vector<std::uint16_t> udp_ports;  // one a shard
  bool tagged = false;
  Nonce salt = {};
  std::optional<Proof> proof = {};        // the switch's, where it has a secret
  std::optional<IpAddress> data_ip = {};  // where data packets go, if not to the address that was reached
  bool in_tree = false;                   // the job goes through several switches
  std::string above = {};                 // then: the switch above the one that says this, in errors; "": none

  // Chunks are numbered from a random start, the first four bytes of the salt: a packet of another epoch, or a guessed
  // one, falls outside of what the slots expect.
  std::uint32_t first_chunk() const {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < sizeof number; ++i) number = number << 8 | std::to_integer<std::uint32_t>(salt[i]);
    return number;
  }

  void set_first_chunk(std::uint32_t number) {  // in a tree all switches count alike
    for (std::size_t i = sizeof number; i-- > 0; number >>= 8) salt[i] = static_cast<std::byte>(number & 0xff);
  }

  bool operator==(const Admitted&) const = default;
};

struct Refused {
  std::string reason;
  ErrorCode code = ErrorCode::kRefused;
  int rank = kNoRank;
  double retry_s = 0;  // the cause may pass within this time: worth trying again until then

  bool operator==(const Refused&) const = default;
};

// Where a switch and the ranks share each large tensor: which share the switch gets, and why.
struct SharedWork {
  double of_switch = 0;  // 0 to 1
  // In bytes/s: the switch takes so much from each worker, and a worker's link carries so much.
  double switch_bytes_s = 0, link_bytes_s = 0;

  bool operator==(const SharedWork&) const = default;
};

// Of the link of a switch. One of the two.
struct LinkShare {
  double of_fair = 1;        // the job has had so many times its fair share lately, above 1
  double grant_bytes_s = 0;  // other traffic has had more than is fair: each worker may send so much; 0: no grant

  bool operator==(const LinkShare&) const = default;
};

struct Heartbeat {
  std::optional<SharedWork> shared = std::nullopt;     // from rank 0 of a job that shares its tensors
  std::optional<LinkShare> link_share = std::nullopt;  // from a switch, at any time
  bool is_late = false;                                // the same: the other ranks of the job wait for this one

  bool operator==(const Heartbeat&) const = default;
};

struct Left {
  std::uint16_t rank = 0;

  bool operator==(const Left&) const = default;
};

struct Failed {
  std::string reason;
  ErrorCode code = ErrorCode::kPeerFailed;
  int rank = kNoRank;

  bool operator==(const Failed&) const = default;
};

struct Leave {
  bool failed = false;  // the other fields matter only then
  std::string reason;
  ErrorCode code = ErrorCode::kPeerFailed;
  int rank = kNoRank;  // whom the leaver blames

  bool operator==(const Leave&) const = default;
};

using Message = std::variant<Hello, Join, Waiting, Admitted, Refused, Heartbeat, Left, Failed, Leave, Ranks>;

// `line` without its newline. An error says which field is wrong and how.
Result<Message> parse(std::string_view line);
std::string emit(const Message& message);  // with its newline; at most kLineBytesMax

bool is_spoken(std::uint16_t version);
// The newest version that this build and the sender of this hello speak, if they have one in common.
std::optional<std::uint16_t> common_version(const Hello& hello);

const char* type_of(const Message& message);
bool is_valid_job_name(std::string_view name);

// Text from a peer that goes into a log or a terminal: cut, and control characters replaced.
std::string printable(std::string_view text, std::size_t bytes_max = 200);

}  // namespace netfold::control
