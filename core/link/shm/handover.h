// Memory from one process of a machine to another, without a name in a file system: nothing stays behind, whoever dies
// when. One side opens a local socket with a random name. It tells the other side, by some other connection, the name
// and a token. The other side sends its descriptor. Only processes of the same network namespace can find the socket,
// so ranks of an emulated network never bypass it.
#pragma once

#include <memory>
#include <string>

namespace netfold::link {

class FdReceiver {
 public:
  static std::unique_ptr<FdReceiver> open();  // null if the kernel says no
  ~FdReceiver();
  FdReceiver(const FdReceiver&) = delete;
  FdReceiver& operator=(const FdReceiver&) = delete;

  const std::string& name() const { return name_; }    // every process on the machine may see it
  const std::string& token() const { return token_; }  // only those who were told can know it

  // The descriptor that a process with the token sent; the caller closes it. -1 if there is no descriptor. Does not
  // wait.
  int take() const;

 private:
  FdReceiver(std::string name, std::string token, int listener);

  std::string name_, token_;
  int listener_;
};

// Sends a copy of `descriptor`; false if there is no such socket here. Does not wait until it is taken.
bool send_fd(const std::string& door, const std::string& token, int descriptor);

}  // namespace netfold::link
