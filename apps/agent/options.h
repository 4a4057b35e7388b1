// The command line of netfold-agent: what may be said, and the help that teaches it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace netfold::apps {

struct AgentOptions {
  std::string socket;  // a path or @name
  std::vector<int> cores;
  pid_t end_with = 0;  // a process; 0: none
  std::string log_level = "info";
};

struct ParsedAgent {
  std::optional<AgentOptions> options;
  int exit_status = 0;  // where there are no options: help was shown (0), or the usage was wrong (2)
};
ParsedAgent parse_agent_command_line(int argc, char** argv);

}  // namespace netfold::apps
