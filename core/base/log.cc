#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>

#include "base/json.h"

namespace netfold::log {
namespace {

// spdlog hands no fields to a formatter. It formats a line in the thread that logs it.
thread_local const std::string* job_of_line = nullptr;

class JsonFields final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& line, const std::tm&, spdlog::memory_buf_t& out) override {
    std::string fields = "\"message\":" + text_of({line.payload.data(), line.payload.size()});
    if (job_of_line != nullptr && !job_of_line->empty()) fields += ",\"job\":" + text_of(*job_of_line);
    out.append(fields.data(), fields.data() + fields.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JsonFields>(); }

 private:
  static std::string text_of(std::string_view text) { return json_text(nlohmann::json(text)); }
};

}  // namespace

void set_up(const std::string& name) {
  spdlog::set_default_logger(spdlog::stderr_color_mt(name));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
}

void set_level(const std::string& name) {
  spdlog::set_level(spdlog::level::from_str(name));
}

void write_json() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<JsonFields>('*');
  formatter->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%*})");
  spdlog::set_formatter(std::move(formatter));
}

void line(Level level, fmt::string_view format, fmt::format_args arguments, const std::string& job) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  const auto wanted = kLevels[static_cast<int>(level)];
  if (!spdlog::should_log(wanted)) return;
  job_of_line = &job;
  spdlog::default_logger_raw()->log(wanted, spdlog::string_view_t(fmt::vformat(format, arguments)));
  job_of_line = nullptr;
}

}  // namespace netfold::log
