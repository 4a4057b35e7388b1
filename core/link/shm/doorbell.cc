#include "link/shm/doorbell.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace netfold::link {
namespace {

// An abstract address begins with a zero byte.
bool apply(int (*bind_or_connect)(int, const sockaddr*, socklen_t), int descriptor, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  name.copy(address.sun_path + 1, name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return bind_or_connect(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

}  // namespace

std::string unique_name() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != sizeof words) return {};
  return fmt::format("netfold-{:016x}{:016x}", words[0], words[1]);
}

std::shared_ptr<Doorbell> Doorbell::create() {
  auto bell = std::shared_ptr<Doorbell>(
      new Doorbell(unique_name(), socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  return apply(&bind, bell->descriptor_, bell->name_) ? bell : nullptr;
}

std::shared_ptr<Doorbell> Doorbell::find(const std::string& name) {
  auto bell =
      std::shared_ptr<Doorbell>(new Doorbell(name, socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  return apply(&connect, bell->descriptor_, bell->name_) ? bell : nullptr;
}

Doorbell::~Doorbell() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Doorbell::ring() const {
  const char one = 1;
  send(descriptor_, &one, 1, MSG_NOSIGNAL);  // full means: already rung
}

void Doorbell::clear() const {
  char rung;
  while (recv(descriptor_, &rung, 1, 0) == 1) {
  }
}

}  // namespace netfold::link
