#include "group/via_nic/nic_group.h"

#include <fmt/core.h>

#include <random>
#include <utility>

namespace netfold::group {
namespace {

// Locally administered, and drawn, so that NICs of other jobs on the same network have others.
std::uint64_t drawn_address() {
  constexpr std::uint64_t kPrefix = 0x46'4e'02;  // 02:4e:46
  std::random_device random;
  return kPrefix | std::uint64_t{random() & 0xffffff} << 24;
}

}  // namespace

Result<TakenNic> take_nic(const std::string& place, int rank) {
  const auto parsed = link::parse_pci_place(place, rank);
  if (!parsed) return tl::unexpected(parsed.error());
  auto device = link::open_pci_device(*parsed, kNicRegisterBytes, kNicMemoryBytes);
  if (!device) return tl::unexpected(device.error());
  NicDriver driver(**device);
  const auto shape = driver.identify();
  if (!shape) return fail(shape.error().code, fmt::format("the device at {}: {}", place, shape.error().message));
  const auto address = driver.own_address();
  if (!address) return tl::unexpected(address.error());
  return TakenNic{std::move(*device), *shape, *address};
}

Result<std::unique_ptr<NicGroup>> NicGroup::open(NicGroupOptions options) {
  if (options.peers.world > static_cast<int>(kNicRingMax)) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("a ring of NICs has at most {} places, not {}", kNicRingMax, options.peers.world));
  }
  if (options.peers.require_auth) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         "the frames of smart NICs carry no tags: unset NETFOLD_REQUIRE_AUTH");
  }
  auto nic = take_nic(options.nic, options.peers.rank);
  if (!nic) return tl::unexpected(nic.error());
  auto mesh = listen_for_peers(options.peers);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<NicGroup>(new NicGroup(std::move(options), std::move(*mesh), std::move(*nic)));
}

NicGroup::NicGroup(NicGroupOptions options, std::unique_ptr<Mesh> mesh, TakenNic nic)
    : Driver({.thread_name = fmt::format("nf-nic-{}", options.peers.rank),
              .rank = options.peers.rank,
              .core = options.peers.core,
              .on_completion = options.peers.on_completion}),
      options_(std::move(options)),
      session_{.peers = {options_.peers.rank, options_.peers.world, from_seconds(options_.peers.timeout_s)},
               .shape = nic.shape,
               .own_address = nic.own_address != 0 ? nic.own_address : drawn_address(),
               .ring_number = std::random_device{}() & 0xffffff},
      mesh_(std::move(mesh)),
      device_(std::move(nic.device)),
      address_(link::to_string(mesh_->addresses())) {}

Result<void> NicGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard connecting(connecting_);
  if (static_cast<int>(addresses.size()) != options_.peers.world || is_started() || is_closing()) {
    return connects_once(options_.peers.world, addresses.size());
  }
  const auto goes_on = [&] { return !is_closing() && (!keep_going || keep_going()); };
  auto peers = connect_peers(*mesh_, options_.peers, addresses, order_, goes_on);
  if (!peers) return tl::unexpected(peers.error());
  start(std::make_unique<NicSession>(session_, std::move(peers->session), std::move(device_)));
  return {};
}

}  // namespace netfold::group
