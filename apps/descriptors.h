// A connection is a descriptor, and the usual soft limit of 1024 is less than what a program here may hold.
#pragma once

#include <sys/resource.h>

namespace netfold::apps {

inline void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace netfold::apps
