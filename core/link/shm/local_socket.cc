#include "link/shm/local_socket.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace netfold::link {
namespace {

int open_local(int type, const std::string& name, int (*bind_or_connect)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return -1;
  name.copy(address.sun_path + 1, name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int descriptor = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  if (bind_or_connect(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0) return descriptor;
  close(descriptor);
  return -1;
}

}  // namespace

std::string unique_name() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != sizeof words) return {};
  return fmt::format("netfold-{:016x}{:016x}", words[0], words[1]);
}

int bind_local(int type, const std::string& name) {
  return open_local(type, name, &bind);
}

int connect_local(int type, const std::string& name) {
  return open_local(type, name, &connect);
}

}  // namespace netfold::link
