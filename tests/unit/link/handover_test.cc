// Passing memory to another process by a file descriptor, and the processes that are rejected.
#include "link/shm/handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/shm/doorbell.h"
#include "link/shm/local_socket.h"

namespace netfold::link {
namespace {

class Handover : public ::testing::Test {
 protected:
  Handover() : file_(open("/dev/null", O_RDONLY)) {}
  ~Handover() override { close(file_); }

  bool comes_through() const {
    const int taken = door_->take();
    if (taken >= 0) close(taken);
    return taken >= 0;
  }

  std::unique_ptr<FdReceiver> door_ = FdReceiver::open();
  int file_;
};

TEST_F(Handover, GivesADescriptorToWhoeverOpenedTheDoor) {
  EXPECT_FALSE(comes_through());
  EXPECT_TRUE(send_fd(door_->name(), door_->token(), file_));
  EXPECT_TRUE(comes_through());
  EXPECT_FALSE(comes_through());
}

TEST_F(Handover, StrangersAreTurnedAway) {
  EXPECT_TRUE(send_fd(door_->name(), "netfold-guess", file_));
  EXPECT_FALSE(send_fd(door_->name(), "", file_));
  const int silent = connect_local(SOCK_SEQPACKET, door_->name());
  const int talks = connect_local(SOCK_SEQPACKET, door_->name());
  EXPECT_EQ(send(talks, door_->token().data(), door_->token().size(), 0), static_cast<ssize_t>(door_->token().size()));
  EXPECT_TRUE(send_fd(door_->name(), door_->token(), file_));
  EXPECT_TRUE(comes_through()) << "strangers kept it out";
  close(silent);
  close(talks);
}

TEST_F(Handover, AClosedDoorIsNotFound) {
  const std::string name = door_->name(), token = door_->token();
  door_.reset();
  EXPECT_FALSE(send_fd(name, token, file_));
  EXPECT_FALSE(send_fd("netfold-nowhere", token, file_));
  EXPECT_FALSE(Doorbell::find("netfold-nobody"));
}

TEST_F(Handover, ANetworkNamespaceOfItsOwnFindsNoDoor) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(2);
    _exit(send_fd(door_->name(), door_->token(), file_) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this machine gives no network namespaces";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace netfold::link
