// Messages of a program to the service manager that started it, such as systemd (protocol: sd_notify).
#pragma once

#include <string>

namespace netfold::apps {

// Such as "READY=1". Does nothing where no service manager listens (NOTIFY_SOCKET is not set).
void tell_service_manager(const std::string& state);

}  // namespace netfold::apps
