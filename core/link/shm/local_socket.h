// Local sockets with random names that no file system holds: "abstract" addresses, which begin with a zero byte and end
// with their owner.
#pragma once

#include <string>

namespace netfold::link {

std::string unique_name();  // that cannot be guessed; empty if the kernel has no randomness

// A new non-blocking socket of this type (SOCK_DGRAM, ...) with that name, or connected to it; -1 if that cannot be.
int bind_local(int type, const std::string& name);
int connect_local(int type, const std::string& name);

}  // namespace netfold::link
