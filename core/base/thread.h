// The start of every thread of Netfold: it takes its name, its core and the arithmetic of IEEE 754, and leaves signals
// to the program's main thread.
#pragma once

#include <string>
#include <vector>

namespace netfold {

constexpr int kAnyCore = -1;

// `name` is cut to the kernel's 15 characters. A core that does not exist is reported in the log and ignored.
void set_up_thread(const std::string& name, int core);

std::vector<int> allowed_cores();  // of the calling thread, ascending
// The calling thread goes to a core it may run on; where it may run stays as it was.
void move_to_core(int core);

double thread_cpu_s();  // CPU seconds of the calling thread so far

}  // namespace netfold
