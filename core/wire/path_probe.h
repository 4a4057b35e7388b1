// The packet that finds out which sizes pass on a path: padded to the size that is asked about, and sent back as it is
// (PROTOCOL.md, "The MTU of a path").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/control/messages.h"

namespace netfold::wire {

struct PathProbe {
  static constexpr std::size_t kHeadBytes = 24;

  control::Nonce nonce = {};  // of the switch's hello on this worker's connection
  std::uint32_t number = 0;   // that the sender gave this probe

  bool operator==(const PathProbe&) const = default;
};

using PathProbeHead = std::array<std::byte, PathProbe::kHeadBytes>;  // zeros follow

PathProbeHead emit(const PathProbe& probe);
// Nothing of another packet.
std::optional<PathProbe> read_path_probe(std::span<const std::byte> bytes);

}  // namespace netfold::wire
