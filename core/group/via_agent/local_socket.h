// Messages between processes of one machine, each a JSON object, with descriptors beside them. An address is a path, or
// `@name`: a name in no file system, seen only in the same network namespace.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "group/via_agent/shared_memory.h"

namespace netfold::group {

struct Message {
  nlohmann::json body;
  std::vector<Descriptor> descriptors = {};
};

// The process at the other end, as the kernel reports it.
struct Peer {
  pid_t pid;
  uid_t uid;
};

class LocalSocket {
 public:
  // kSystem: no process listens there.
  static Result<LocalSocket> connect(const std::string& address);

  explicit LocalSocket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  int descriptor() const { return descriptor_.get(); }
  Result<Peer> peer() const;
  bool has_ended() const;  // the other end is closed; asking takes no message away

  Result<void> send(const nlohmann::json& body, const std::vector<int>& descriptors = {}) const;
  // Empty if nothing has come; kSystem if the other end is closed or sends bytes that are not a message.
  Result<std::optional<Message>> receive() const;
  // Waits for it. `keep_going` is asked at least every 100 ms; false gives up.
  Result<Message> await(Nanoseconds deadline, const std::function<bool()>& keep_going) const;

 private:
  Descriptor descriptor_;
};

class LocalListener {
 public:
  // kSystem: another program listens there, or the address cannot be used. A socket that a dead program left behind is
  // replaced.
  static Result<LocalListener> at(const std::string& address);
  ~LocalListener();
  LocalListener(LocalListener&&) = default;

  int descriptor() const { return descriptor_.get(); }
  const std::string& address() const { return address_; }
  std::optional<LocalSocket> accept() const;  // empty if no process has connected

 private:
  LocalListener(std::string address, Descriptor descriptor)
      : address_(std::move(address)), descriptor_(std::move(descriptor)) {}

  std::string address_;
  Descriptor descriptor_;
};

}  // namespace netfold::group
