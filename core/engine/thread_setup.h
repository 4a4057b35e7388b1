// What a thread of Netfold does first: take its name, its core, and leave signals to the program's main thread.
#pragma once

#include <string>

namespace netfold::engine {

constexpr int kAnyCore = -1;

// `name` is cut to the kernel's 15 characters. A core that does not exist is reported in the log and ignored.
void set_up_thread(const std::string& name, int core);

double thread_cpu_s();  // CPU seconds of the calling thread so far

}  // namespace netfold::engine
