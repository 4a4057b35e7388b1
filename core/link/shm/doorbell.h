// How processes of one machine wake each other: a named pipe that its owner polls among its sockets. A futex would be
// a little cheaper, but a thread cannot wait for a futex and for sockets at once.
#pragma once

#include <memory>
#include <string>

namespace netfold::link {

// A name in /dev/shm that nobody else has.
std::string unique_shared_name();

class Doorbell {
 public:
  static std::shared_ptr<Doorbell> create();                       // null if the machine has no /dev/shm to write to
  static std::shared_ptr<Doorbell> find(const std::string& name);  // another process's, to ring; null if not there
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }
  void ring() const;
  void clear() const;
  void forget_name();  // those who have found it keep it; nobody finds it any more

 private:
  Doorbell(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}

  std::string name_;
  int descriptor_;
  bool is_named_ = false;
};

}  // namespace netfold::link
