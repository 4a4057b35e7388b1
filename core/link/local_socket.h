// UNIX sockets, over which processes of one machine hand each other bytes and descriptors. An address is a path, or
// `@name`: a name in no file system, seen only in the same network namespace.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "link/descriptor.h"

namespace netfold::link {

constexpr std::size_t kDescriptorsMax = 8;  // beside a message

// A socket of a type (SOCK_STREAM or SOCK_SEQPACKET) that does not block. kSystem: no process listens there.
Result<Descriptor> connect_local(const std::string& address, int type);

class LocalListener {
 public:
  // Only this user may connect. kSystem: another program listens there, or the address cannot be used. A socket that a
  // dead program left behind is replaced.
  static Result<LocalListener> at(const std::string& address, int type);
  ~LocalListener();
  LocalListener(LocalListener&&) = default;

  int descriptor() const { return descriptor_.get(); }
  const std::string& address() const { return address_; }
  std::optional<Descriptor> accept() const;  // empty if no process has connected

 private:
  LocalListener(std::string address, Descriptor descriptor)
      : address_(std::move(address)), descriptor_(std::move(descriptor)) {}

  std::string address_;
  Descriptor descriptor_;
};

// The process at the other end of a socket, as the kernel reports it; `pid` is 0 if it is in another container.
struct Peer {
  pid_t pid;
  uid_t uid;
};
std::optional<Peer> peer_of(const Descriptor& socket);

// As sendmsg() and recvmsg(), with descriptors beside the bytes; those that come are added to `descriptors`. `flags`
// are those that recvmsg() reports.
ssize_t send_with_descriptors(int socket, std::span<iovec> pieces, std::span<const int> descriptors);
ssize_t receive_with_descriptors(int socket, std::span<std::byte> into, std::vector<Descriptor>& descriptors,
                                 int& flags);

}  // namespace netfold::link
