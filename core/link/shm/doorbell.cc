#include "link/shm/doorbell.h"

#include <sys/socket.h>
#include <unistd.h>

#include "link/shm/local_socket.h"

namespace netfold::link {

std::shared_ptr<Doorbell> Doorbell::create() {
  std::string name = unique_name();
  const int descriptor = bind_local(SOCK_DGRAM, name);
  return descriptor < 0 ? nullptr : std::shared_ptr<Doorbell>(new Doorbell(std::move(name), descriptor));
}

std::shared_ptr<Doorbell> Doorbell::find(const std::string& name) {
  const int descriptor = connect_local(SOCK_DGRAM, name);
  return descriptor < 0 ? nullptr : std::shared_ptr<Doorbell>(new Doorbell(name, descriptor));
}

Doorbell::~Doorbell() {
  close(descriptor_);
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
