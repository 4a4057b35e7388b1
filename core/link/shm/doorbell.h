// How processes of one machine wake each other: a local socket that its owner polls among its others. (A thread cannot
// wait for a futex and for sockets at once.) Its name is in no file system, so nothing stays behind when a process
// dies; and only processes of the same network namespace can find it, so ranks of an emulated network never bypass it.
#pragma once

#include <memory>
#include <string>

namespace netfold::link {

class Doorbell {
 public:
  static std::shared_ptr<Doorbell> create();                       // null if the kernel says no
  static std::shared_ptr<Doorbell> find(const std::string& name);  // another process's, to ring; null if not there
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }
  void ring() const;
  void clear() const;

 private:
  Doorbell(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}

  std::string name_;
  int descriptor_;
};

}  // namespace netfold::link
