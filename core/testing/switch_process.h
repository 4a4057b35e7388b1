// The switch's process in a simulated cluster: the real control side (switch/switch_control.h) and the real packet
// paths over simulated links.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "switch/switch_control.h"
#include "testing/actor.h"
#include "testing/surroundings.h"

namespace netfold::testing {

class SwitchProcess final : public Actor {
 public:
  // At another address than the usual one: one of several.
  SwitchProcess(Surroundings& around, std::uint64_t life, const link::Address& address = kSwitchAddress);
  ~SwitchProcess() override;

  // As by SIGTERM: tells its workers, and is done once they have heard it.
  void stop();
  bool is_done() const { return is_stopping_ && control_.peers().empty(); }
  const switching::SwitchControl& control() const { return control_; }
  std::uint64_t folded_chunks() const;  // of the jobs that it has

 private:
  class DataPlane;

  void run() override;
  void accept(std::unique_ptr<link::ControlLink> link, IpAddress ip);
  switching::SwitchRules rules(std::uint64_t life);

  struct Mismatch {
    std::uint16_t job, epoch;
    int rank;
    std::string what;
  };

  Surroundings& around_;
  const link::Address address_;
  AdmissionsChecker own_admissions_;  // of another switch than the usual one: it has numbers of its own
  std::unique_ptr<DataPlane> data_plane_;
  switching::SwitchControl control_;
  std::vector<std::pair<std::unique_ptr<link::ControlLink>, IpAddress>> accepted_;
  std::set<const void*> news_;  // links with something to read
  std::vector<Mismatch> mismatches_;
  bool is_stopping_ = false, has_stopped_ = false;
};

}  // namespace netfold::testing
