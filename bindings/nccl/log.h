// The plugin logs through NCCL's own logger, beside NCCL's lines (NCCL_DEBUG).
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/result.h"
#include "interface.h"

namespace netfold::nccl {

void set_logger(Logger logger);

void inform(const std::string& text);  // with NCCL_DEBUG=INFO
void warn(const std::string& text);    // with NCCL_DEBUG=WARN, too

// Warns, and returns the status that stands for the error.
Status report(const Error& error);
inline Status report(const Result<void>& result) {
  return result ? kSuccess : report(result.error());
}

// No C++ exception goes through NCCL.
template <class Body>
Status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return kSystemError;
  } catch (const std::exception& exception) {
    return report(Error{ErrorCode::kSystem, exception.what()});
  }
}

}  // namespace netfold::nccl
