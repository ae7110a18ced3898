// Messages to the user on standard error, through spdlog; standard output is for results alone.
#pragma once

#include <string>
#include <utility>

#include <spdlog/spdlog.h>

namespace draftsmith {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sends spdlog's default logger to standard error with bare messages ("warning: ..." before warnings). main() calls it
// once; `--quiet` is kWarning.
void start_logging(LogLevel level);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}

}  // namespace draftsmith
