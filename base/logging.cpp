#include "base/logging.h"

#include <memory>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace draftsmith {

namespace {

// Formatter that writes "warning: " and "error: " before messages of those levels.
class LevelPrefix : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    std::string_view prefix;
    if (message.level == spdlog::level::warn) prefix = "warning: ";
    if (message.level >= spdlog::level::err) prefix = "error: ";
    out.append(prefix.data(), prefix.data() + prefix.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelPrefix>(); }
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void start_logging(LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelPrefix>('*').set_pattern("%*%v");
  sink->set_formatter(std::move(formatter));
  auto logger = std::make_shared<spdlog::logger>("draftsmith", std::move(sink));
  logger->set_level(spdlog_level(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace draftsmith
