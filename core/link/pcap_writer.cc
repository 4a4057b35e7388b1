#include "link/pcap_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace netfold::link {
namespace {

constexpr std::uint32_t kPcapMagicNanoseconds = 0xa1b23c4d;
enum class LinkType : std::uint32_t { kEthernet = 1, kRawIp = 101 };
constexpr std::size_t kUdpBytes = 8, kIpUdpBytesMax = 40 + kUdpBytes;

void put16(std::span<std::byte> bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value);
}

void put32(std::span<std::byte> bytes, std::size_t at, std::uint32_t value) {
  put16(bytes, at, value >> 16);
  put16(bytes, at + 2, value & 0xffff);
}

struct IpUdpHeader {
  std::array<std::byte, kIpUdpBytesMax> bytes{};
  std::size_t size_bytes = 0;
};

// UDP checksum 0: not computed.
void put_udp(std::span<std::byte> bytes, Address from, Address to, std::size_t payload_bytes) {
  put16(bytes, 0, from.port);
  put16(bytes, 2, to.port);
  put16(bytes, 4, kUdpBytes + payload_bytes);
}

IpUdpHeader v4_header(Address from, Address to, std::size_t payload_bytes) {
  IpUdpHeader header{.size_bytes = 20 + kUdpBytes};
  std::span<std::byte> bytes = header.bytes;
  bytes[0] = std::byte{0x45};
  put16(bytes, 2, header.size_bytes + payload_bytes);
  bytes[8] = std::byte{64};
  bytes[9] = std::byte{17};
  put32(bytes, 12, from.ip.v4());
  put32(bytes, 16, to.ip.v4());
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < 20; at += 2) {
    sum += static_cast<std::uint32_t>(bytes[at]) << 8 | static_cast<std::uint32_t>(bytes[at + 1]);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put16(bytes, 10, ~sum & 0xffff);
  put_udp(bytes.subspan(20), from, to, payload_bytes);
  return header;
}

IpUdpHeader v6_header(Address from, Address to, std::size_t payload_bytes) {
  IpUdpHeader header{.size_bytes = 40 + kUdpBytes};
  std::span<std::byte> bytes = header.bytes;
  bytes[0] = std::byte{0x60};
  put16(bytes, 4, kUdpBytes + payload_bytes);
  bytes[6] = std::byte{17};
  bytes[7] = std::byte{64};
  std::ranges::copy(from.ip.v6(), bytes.begin() + 8);
  std::ranges::copy(to.ip.v6(), bytes.begin() + 24);
  put_udp(bytes.subspan(40), from, to, payload_bytes);
  return header;
}

IpUdpHeader header_of(Address from, Address to, std::size_t payload_bytes) {
  const bool is_v4 = from.ip.is_v4() && to.ip.is_v4();
  return is_v4 ? v4_header(from, to, payload_bytes) : v6_header(from, to, payload_bytes);
}

class PcapWriter final : public Link {
 public:
  PcapWriter(std::unique_ptr<Link> inner, std::FILE* file, LinkType type, Address local)
      : inner_(std::move(inner)), file_(file), type_(type), local_(local) {
    local_.port = inner_->local_address().port;
    const struct {
      std::uint32_t magic = kPcapMagicNanoseconds;
      std::uint16_t major = 2, minor = 4;
      std::uint32_t zone = 0, accuracy = 0, longest = 65535, link_type;
    } header{.link_type = static_cast<std::uint32_t>(type)};
    put(&header, sizeof header);
  }
  ~PcapWriter() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  PcapWriter(const PcapWriter&) = delete;

  std::size_t send(std::span<const Outgoing> batch) override {
    const std::size_t taken = inner_->send(batch);
    for (const Outgoing& datagram : batch.first(taken)) {
      write(local_, datagram.to, {datagram.head, datagram.body, datagram.tail});
    }
    return taken;
  }
  std::span<const Incoming> receive(std::size_t most) override {
    const auto received = inner_->receive(most);
    for (const Incoming& datagram : received) write(datagram.from, local_, {datagram.bytes, {}, {}});
    return received;
  }
  Nanoseconds deadline() const override { return inner_->deadline(); }
  int descriptor() const override { return inner_->descriptor(); }
  Address local_address() const override { return inner_->local_address(); }
  const LinkStats& stats() const override { return inner_->stats(); }

 private:
  void write(Address from, Address to, const std::array<std::span<const std::byte>, 3>& pieces) {
    if (file_ == nullptr) return;
    std::size_t payload_bytes = 0;
    for (const auto piece : pieces) payload_bytes += piece.size();
    const IpUdpHeader header = header_of(from, to, payload_bytes);
    const std::size_t head_bytes = type_ == LinkType::kRawIp ? header.size_bytes : 0;
    const auto time = std::chrono::system_clock::now().time_since_epoch().count();
    const auto length = static_cast<std::uint32_t>(head_bytes + payload_bytes);
    const std::array<std::uint32_t, 4> record{static_cast<std::uint32_t>(time / kSecond),
                                              static_cast<std::uint32_t>(time % kSecond), length, length};
    put(record.data(), sizeof record);
    put(header.bytes.data(), head_bytes);
    for (const auto piece : pieces) put(piece.data(), piece.size());
  }

  void put(const void* bytes, std::size_t size_bytes) {
    if (file_ == nullptr || size_bytes == 0 || std::fwrite(bytes, size_bytes, 1, file_) == 1) return;
    log::warn("the capture file could not be written ({}): capturing ends, traffic goes on", std::strerror(errno));
    std::fclose(file_);
    file_ = nullptr;
  }

  std::unique_ptr<Link> inner_;
  std::FILE* file_;
  LinkType type_;
  Address local_;
};

Result<std::unique_ptr<Link>> write_to(const std::string& path, std::unique_ptr<Link> inner, LinkType type,
                                       Address local) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    return tl::unexpected(system_error(fmt::format("cannot write the capture file {}", path)));
  }
  return std::make_unique<PcapWriter>(std::move(inner), file, type, local);
}

}  // namespace

Result<std::unique_ptr<Link>> capture(std::unique_ptr<Link> inner, const std::string& path, Address local) {
  return write_to(path, std::move(inner), LinkType::kRawIp, local);
}

Result<std::unique_ptr<Link>> capture_frames(std::unique_ptr<Link> inner, const std::string& path) {
  return write_to(path, std::move(inner), LinkType::kEthernet, {});
}

}  // namespace netfold::link
