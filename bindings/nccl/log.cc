#include "log.h"

#include <atomic>

namespace netfold::nccl {
namespace {

std::atomic<Logger> in_use = nullptr;

void say(LogLevel level, const std::string& text) {
  const Logger logger = in_use;
  if (logger != nullptr) logger(level, kLogInit | kLogNet, "netfold", 0, "NET/Netfold : %s", text.c_str());
}

Status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kSystem: return kSystemError;
    case ErrorCode::kTimeout:
    case ErrorCode::kPeerFailed:
    case ErrorCode::kSwitchFailed: return kRemoteError;
    default: return kInvalidUsage;
  }
}

}  // namespace

void set_logger(Logger logger) {
  in_use = logger;
}

void inform(const std::string& text) {
  say(kLogInfo, text);
}

void warn(const std::string& text) {
  say(kLogWarn, text);
}

Status report(const Error& error) {
  warn(error.message);
  return status_of(error.code);
}

}  // namespace netfold::nccl
