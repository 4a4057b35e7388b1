// A memory write of PCI Express inside an Ethernet frame, as a GPU's box behind an Ethernet bridge writes gradients to
// its host: 32 elements in a frame of 192 bytes. The shape is ours, after what dpdk-switch (section 4.2.2) says of
// ExpEther, whose own format is not public; the transaction's header is PCI Express's.
//
//   0            14         44          60          188      192
//   | Ethernet 14 | cover 30 | header 16 | data 128 | zero 4 |      Ethernet type 0x88b6
//
//   cover:  ver,kind 1 | format 1 | job 2 | epoch 2 | rank 2 | world 2 | sequence 4 | chunk 4 | sum address 8 | zero 4
//   header: 0x60 | 0 | length 10 bits, 32 | requester 2 | tag 1 | byte enables 0xff | address 8
//
// Numbers are in network byte order, as PCI Express has them too; elements are little-endian, in the order of memory.
// Source: PCI Express Base Specification 3.0, section 2.2 (memory write request, four-word header).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numbers/format.h"

namespace netfold::wire::pcie {

constexpr std::uint16_t kEtherType = 0x88b6;  // IEEE 802: local experiments
constexpr std::size_t kEthernetBytes = 14, kCoverBytes = 30, kHeaderBytes = 16, kDataBytes = 128;
constexpr std::size_t kElements = 32;
constexpr std::size_t kPacketBytes = kCoverBytes + kHeaderBytes + kDataBytes + 4;  // behind the Ethernet header
constexpr std::size_t kFrameBytes = kEthernetBytes + kPacketBytes;
constexpr std::uint16_t kSwitchRank = 0xffff;

enum class Kind : std::uint8_t {
  kWrite = 0,  // a worker's
  kSum = 1,    // the switch's: one more write, of the sum, to the sum address
};

struct Write {
  Kind kind = Kind::kWrite;
  numbers::Format format = numbers::Format::kFp32;  // fp32 or int32
  std::uint16_t job = 0, epoch = 0, rank = 0, world = 1;
  std::uint32_t sequence = 0;     // of the sender's frames to its host, which acknowledges and orders them
  std::uint32_t chunk = 0;        // which 32 elements of the job's stream: alike at all workers
  std::uint64_t sum_address = 0;  // where in the host's memory the sum of this chunk goes
  std::uint16_t requester = 0;    // bus, device and function of the writer
  std::uint8_t tag = 0;
  std::uint64_t address = 0;  // where these elements go; a multiple of 4

  bool operator==(const Write&) const = default;
};

enum class ParseError : std::uint8_t { kNone, kShort, kVersion, kFormat, kFields, kTransaction };

// Of a packet behind its Ethernet header; `data` is then the 128 bytes of elements.
ParseError parse(std::span<const std::byte> bytes, Write& write, std::span<const std::byte>& data);
// The bytes that all writes of one job have in common. They show with one comparison that a packet belongs to the job.
// fits() is true of a packet exactly if parse() takes it, as a write of the same job, epoch, format and world.
class Pattern {
 public:
  explicit Pattern(const Write& like);

  struct Place {
    std::uint16_t rank;
    std::uint32_t chunk;
    std::uint64_t sum_address;
  };
  bool fits(std::span<const std::byte> bytes, Place& place) const;

 private:
  std::uint64_t identity_;  // version, kind, format, job, epoch
  std::uint16_t world_;
};
inline std::span<const std::byte> data_of(std::span<const std::byte> bytes) {
  return bytes.subspan(kCoverBytes + kHeaderBytes, kDataBytes);
}

// Writes all of a packet but its data; returns where that goes.
std::span<std::byte> emit(const Write& write, std::span<std::byte> packet);
// Of a sum that was emitted: makes it another one of its job.
void readdress(std::span<std::byte> packet, std::uint32_t sequence, std::uint32_t chunk, std::uint64_t address);

const char* name_of(ParseError error);

}  // namespace netfold::wire::pcie
