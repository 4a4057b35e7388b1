#include "link/dpdk/dpdk.h"

namespace netfold::link {

Result<std::unique_ptr<FrameDevices>> open_dpdk(const DpdkOptions&) {
  return fail(
      ErrorCode::kSystem,
      "this Netfold was built without DPDK: install libdpdk-dev (Debian; dpdk-devel in Fedora) and build again, "
      "or fold over ordinary sockets");
}

bool has_dpdk() {
  return false;
}

}  // namespace netfold::link
