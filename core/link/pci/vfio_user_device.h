// A device in another program, by vfio-user (vfio_user.h).
#pragma once

#include <memory>

#include "link/pci/pci_device.h"

namespace netfold::link {

Result<std::unique_ptr<PciDevice>> open_vfio_user_device(const PciPlace& place, std::size_t register_bytes,
                                                         std::size_t memory_bytes);

}  // namespace netfold::link
