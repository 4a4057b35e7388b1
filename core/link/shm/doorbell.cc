#include "link/shm/doorbell.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace netfold::link {

std::string unique_shared_name() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != sizeof words) return {};
  return fmt::format("/dev/shm/netfold-{:016x}{:016x}", words[0], words[1]);
}

std::shared_ptr<Doorbell> Doorbell::create() {
  std::string name = unique_shared_name();
  if (name.empty() || mkfifo(name.c_str(), 0600) != 0) return nullptr;
  auto bell = find(name);
  if (!bell) {
    unlink(name.c_str());
    return nullptr;
  }
  bell->is_named_ = true;
  return bell;
}

// Open for both directions: then it never ends, and opening it never waits.
std::shared_ptr<Doorbell> Doorbell::find(const std::string& name) {
  if (!name.starts_with("/dev/shm/netfold-") || name.find("..") != std::string::npos) return nullptr;
  const int descriptor = open(name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return nullptr;
  struct stat status {};
  if (fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode)) {
    return std::shared_ptr<Doorbell>(new Doorbell(name, descriptor));
  }
  close(descriptor);
  return nullptr;
}

Doorbell::~Doorbell() {
  forget_name();
  close(descriptor_);
}

void Doorbell::ring() const {
  const char one = 1;
  [[maybe_unused]] const auto written = write(descriptor_, &one, 1);  // full means: already rung
}

void Doorbell::clear() const {
  std::array<char, 4096> rung;
  while (read(descriptor_, rung.data(), rung.size()) == static_cast<ssize_t>(rung.size())) {
  }
}

void Doorbell::forget_name() {
  if (is_named_) unlink(name_.c_str());
  is_named_ = false;
}

}  // namespace netfold::link
