// How the connections of a sender and a receiver come to be. A listener hands out a handle, which NCCL carries to the
// sender: an address and a token drawn by lot. The sender opens all its connections there and says a hello on each, and
// the listener answers on the first one. The listener drops a connection that does not know the token. With
// NETFOLD_SECRET both sides prove that they know the secret (wire/control/proofs.h). Their proofs cover the token and
// the nonce of the sender.
//
// NCCL calls connect() and accept() until there is a result: nothing here blocks.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "interface.h"
#include "link/descriptor.h"
#include "link/link.h"
#include "nics.h"
#include "settings.h"
#include "stripes.h"
#include "wire/control/messages.h"

namespace netfold::nccl {

using HandleBytes = std::span<std::byte, kHandleBytes>;

struct Handle {
  link::Address address;
  control::Nonce token = {};

  void write(HandleBytes to) const;
  static std::optional<Handle> read(HandleBytes from);  // nothing if this plugin did not write it
};

control::Nonce draw_nonce();

// The first bytes on each connection.
struct Hello {
  static constexpr std::size_t kBytes = 64;
  control::Nonce nonce = {};  // of the sender, the same on all its connections
  std::uint8_t index = 0, of = 1;
  control::Proof proof = {};
};

class Listener {
 public:
  static Result<std::unique_ptr<Listener>> open(const Nic& nic, const Settings& settings);

  const Handle& handle() const { return handle_; }
  // Null: no sender has opened all its connections yet.
  Result<std::unique_ptr<Receiver>> accept();

 private:
  struct Visitor {
    link::Descriptor socket;
    Nanoseconds leaves_at = 0;  // a connection without a hello by then is dropped
    std::array<std::byte, Hello::kBytes> bytes = {};
    std::size_t heard = 0;
  };
  // The connections of one sender that have come.
  struct Party {
    std::vector<link::Descriptor> sockets;
    std::size_t missing = 0;
  };

  Listener(link::Descriptor socket, Handle handle, const Settings& settings);
  void let_in(Nanoseconds now);
  bool is_done_with(Visitor& visitor, Nanoseconds now);
  void seat(const Hello& hello, link::Descriptor socket);

  const link::Descriptor socket_;
  const Handle handle_;
  const Settings settings_;
  const Nanoseconds gives_up_at_;
  std::vector<Visitor> visitors_;
  std::map<control::Nonce, Party> parties_;
  bool has_warned_ = false;  // of strangers
};

// A sender on its way to a listener.
class Connecting {
 public:
  Connecting(const Handle& handle, const Nic& nic, const Settings& settings);

  // Null: goes on.
  Result<std::unique_ptr<Sender>> pump();
  bool is_late() const { return now() > gives_up_at_; }  // pump() has not been called in time

 private:
  Result<void> open();
  Result<bool> say_hello(std::size_t index);
  Result<bool> hear_answer();
  tl::unexpected<Error> failed(ErrorCode code, const std::string& why) const;

  const Handle handle_;
  const Nic nic_;
  const Settings settings_;
  const control::Nonce nonce_;
  Nanoseconds gives_up_at_;
  std::vector<link::Descriptor> sockets_;
  std::size_t greeted_ = 0;  // connections on which the hello has been said
  control::Proof answer_ = {};
  std::size_t heard_ = 0;  // bytes of it
};

}  // namespace netfold::nccl
