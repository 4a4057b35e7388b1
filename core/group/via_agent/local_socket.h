// Messages between processes of one machine, each a JSON object, with descriptors beside them (link/local_socket.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "link/descriptor.h"
#include "link/local_socket.h"

namespace netfold::group {

using link::Descriptor;

struct Message {
  nlohmann::json body;
  std::vector<Descriptor> descriptors = {};
};

class LocalSocket {
 public:
  // kSystem: no process listens there.
  static Result<LocalSocket> connect(const std::string& address);

  explicit LocalSocket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  int descriptor() const { return descriptor_.get(); }
  Result<link::Peer> peer() const;  // kSystem if it is in another container
  bool has_ended() const;           // the other end is closed; asking takes no message away

  Result<void> send(const nlohmann::json& body, const std::vector<int>& descriptors = {}) const;
  // Empty if nothing has come; kSystem if the other end is closed or sends bytes that are not a message.
  Result<std::optional<Message>> receive() const;
  // Waits for it. `keep_going` is asked at least every 100 ms; false gives up.
  Result<Message> await(Nanoseconds deadline, const std::function<bool()>& keep_going) const;

 private:
  Descriptor descriptor_;
};

}  // namespace netfold::group
