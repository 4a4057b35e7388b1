// The command line of netfold-switch: what may be said, and the help that teaches it.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "link/dpdk/dpdk.h"
#include "link/link.h"
#include "switch/ethernet/frame_plane.h"
#include "switch/switch_server.h"

namespace netfold::apps {

// Set where the switch is one of Ethernet frames.
struct FrameSwitchOptions {
  switching::FramePlaneOptions plane;
  link::DpdkOptions dpdk;
};

struct SwitchOptions {
  switching::SwitchServerOptions server;
  std::optional<FrameSwitchOptions> frames;
  std::optional<link::Address> metrics;
  std::string log_level = "info", log_format = "text";
  std::string secret_file, parent_secret_file;
  double drain_s = 0;  // how long running jobs may go on after SIGTERM
};

struct Parsed {
  std::optional<SwitchOptions> options;
  int exit_status = 0;  // where there are no options: help was shown (0), or the usage was wrong (2)
};
Parsed parse_command_line(int argc, char** argv);
// The same without a word on standard error: files that the command line names may have changed.
Result<SwitchOptions> read_again(int argc, char** argv);

// The content of a file that holds a secret, without the newline at its end.
Result<std::string> read_secret(const std::string& path);
// A warning in the log if the file's mode lets others read it; "": no file.
void warn_if_others_may_read(const std::string& path);

}  // namespace netfold::apps
