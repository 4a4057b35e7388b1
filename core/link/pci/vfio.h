// A device in this machine, by the kernel's VFIO. Its driver must be vfio-pci, and the machine must have an IOMMU: the
// device then reaches only the memory that it is given.
#pragma once

#include <memory>

#include "link/pci/pci_device.h"

namespace netfold::link {

Result<std::unique_ptr<PciDevice>> open_vfio_device(const PciPlace& place, std::size_t register_bytes,
                                                    std::size_t memory_bytes);

}  // namespace netfold::link
