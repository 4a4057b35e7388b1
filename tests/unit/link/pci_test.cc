// Where a PCI device is, in text; and a program that takes the part of a device but answers something else.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <linux/vfio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/prng.h"
#include "link/local_socket.h"
#include "link/pci/pci_device.h"
#include "link/pci/vfio_user.h"
#include "support/random_seed.h"

namespace netfold::link {
namespace {

using vfio_user::bytes_of;
using vfio_user::Command;

TEST(PciPlace, NamesADeviceAndItsRegisters) {
  EXPECT_EQ(parse_pci_place("0000:65:00.0", 3), (PciPlace{"0000:65:00.0"}));
  EXPECT_EQ(parse_pci_place("0000:65:00.1,bar=2,offset=0x1000", 0), (PciPlace{"0000:65:00.1", 2, 0x1000}));
  EXPECT_EQ(parse_pci_place("/run/nic{rank},offset=64", 3), (PciPlace{"/run/nic3", 0, 64}));
  EXPECT_TRUE(parse_pci_place("@nic", 0)->is_socket());
  EXPECT_FALSE(parse_pci_place("0000:65:00.0", 0)->is_socket());
}

TEST(PciPlace, SaysWhatToWrite) {
  for (const char* text : {"", "eth1", "65:00.0", "0000:65:00.a", "0000:65:00.0,bar=6", "0000:65:00.0,bar=",
                           "0000:65:00.0,bar=-1", "0000:65:00.0,offset=2", "0000:65:00.0,offset=0x", "/nic,queue=1"}) {
    const auto place = parse_pci_place(text, 0);
    ASSERT_FALSE(place) << text;
    EXPECT_EQ(place.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(place.error().message.find("for example 0000:65:00.0,bar=2"), std::string::npos);
  }
}

// A device of one BAR and one MSI, whose answers are changed now and then.
class LyingDevice {
 public:
  explicit LyingDevice(std::uint64_t seed)
      : prng_(seed),
        path_(fmt::format("@netfold-lying-device-{}-{}", getpid(), seed)),
        listener_(LocalListener::at(path_, SOCK_STREAM).value()),
        thread_([this] { serve(); }) {}
  ~LyingDevice() {
    is_over_ = true;
    thread_.join();
  }
  const std::string& path() const { return path_; }

 private:
  void serve() {
    std::optional<Descriptor> accepted;
    while (!is_over_ && !accepted) accepted = listener_.accept();
    if (!accepted) return;
    const vfio_user::Socket socket(std::move(*accepted));
    while (!is_over_) {
      auto message = socket.receive(now() + kMillisecond);
      if (!message) return;
      if (*message && !answer(socket, **message)) return;
    }
  }
  bool answer(const vfio_user::Socket& socket, const vfio_user::Message& message) {
    vfio_user::Header reply{.id = message.header.id, .command = message.header.command, .flags = vfio_user::kReply};
    std::vector<std::byte> body = message.body;
    if (auto region = message.at<vfio_region_info>(); region && reply.command == Command::kGetRegionInfo) {
      region->size = 4096;
      body.assign(bytes_of(*region).begin(), bytes_of(*region).end());
    }
    if (auto interrupt = message.at<vfio_irq_info>(); interrupt && reply.command == Command::kGetIrqInfo) {
      interrupt->count = 1;
      body.assign(bytes_of(*interrupt).begin(), bytes_of(*interrupt).end());
    }
    if (reply.command == Command::kRegionRead) body.resize(body.size() + sizeof(std::uint32_t));
    if (prng_.chance(0.1)) {
      switch (prng_.below(5)) {
        case 0: body.resize(prng_.below(body.size() + 1)); break;
        case 1: reply.id ^= static_cast<std::uint16_t>(1 + prng_.below(0xffff)); break;
        case 2: reply.flags = static_cast<std::uint32_t>(prng_.below(64)); break;
        case 3: reply.error = static_cast<std::uint32_t>(prng_.below(200)), reply.flags |= vfio_user::kError; break;
        default:
          for (std::byte& each : body) each = static_cast<std::byte>(prng_.next());
      }
    }
    return socket.send(reply, {body}).has_value();
  }

  Prng prng_;
  std::string path_;
  LocalListener listener_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

TEST(VfioUser, WrongAnswersAreErrors) {
  const std::uint64_t seed = tests::random_seed();
  unsigned opened = 0, refused = 0;
  for (std::uint64_t run = 0; run < 100; ++run) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed << " run " << run);
    const LyingDevice device(seed + run);
    auto pci = open_pci_device({device.path()}, 4096, 4096);
    if (!pci) {
      EXPECT_NE(pci.error().message.find(device.path()), std::string::npos) << pci.error().message;
      ++refused;
      continue;
    }
    ++opened;
    ASSERT_EQ((*pci)->memory().size(), 4096u);
    for (unsigned i = 0; i < 20; ++i) {
      if (!(*pci)->write(4 * i, i)) break;
      if (!(*pci)->read(4 * i)) break;
    }
  }
  EXPECT_GT(opened, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace netfold::link
