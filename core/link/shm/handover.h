// Memory from one process of a machine to another, without a name in a file system: nothing stays behind, whoever dies
// when. One side opens a door (a local socket with a random name) and tells the other, by some way of its own, where it
// is and what to say there; the other hands its descriptor in. Doors can be found in the same network namespace alone,
// so ranks of an emulated network never bypass it.
#pragma once

#include <memory>
#include <string>

namespace netfold::link {

class Door {
 public:
  static std::unique_ptr<Door> open();  // null if the kernel says no
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const std::string& name() const { return name_; }    // anybody on the machine may see it
  const std::string& token() const { return token_; }  // only those who were told can know it

  // What was handed in by somebody who knows the token: a descriptor, the caller's to close; -1 if nothing was. Does
  // not wait.
  int take() const;

 private:
  Door(std::string name, std::string token, int listener);

  std::string name_, token_;
  int listener_;
};

// Hands a copy of `descriptor` in; false if there is no such door here. Does not wait until it is taken.
bool hand_in(const std::string& door, const std::string& token, int descriptor);

}  // namespace netfold::link
