// TCP connections as one stream link, which share its bytes in stripes (stripes.h); with tags on the stripes
// (link/tags.h) also a single one.
#pragma once

#include <memory>
#include <vector>

#include "link/descriptor.h"
#include "link/mirrored_memory.h"
#include "link/stream_link.h"
#include "link/tags.h"

namespace netfold::link {

// For several. More than what connections hold: what one that fails had is sent again, and what a slow one has is
// waited for.
constexpr std::size_t kStripedBufferBytes = std::size_t{4} << 20;  // each direction

// Of connected sockets that do not block, and buffers. Null `tags`: stripes without.
std::unique_ptr<StreamLink> striped_stream(std::vector<Descriptor> sockets, Descriptor timer,
                                           std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in,
                                           std::unique_ptr<Tags> tags);

}  // namespace netfold::link
