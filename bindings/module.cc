// netfold._core (ARCHITECTURE.md lists what it holds): one binding file a folder of the core.
#include "module.h"

NB_MODULE(_core, module) {
  module.doc() = "The compiled half of netfold; `import netfold` is the way in.";
  bind_numbers(module);
  bind_codec_timing(module);
  bind_switch_group(module);
  bind_peer_group(module);
  bind_split_group(module);
  bind_nic_group(module);
  bind_agent_group(module);
  bind_schedule(module);
  bind_frames(module);
  bind_sim(module);
  bind_packets(module);
}
