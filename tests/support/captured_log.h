// Messages of the log, for tests that expect warnings.
#pragma once

#include <memory>
#include <sstream>
#include <string>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace draftsmith {

// Collects what is logged while it lives, in place of writing it.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto logger =
        std::make_shared<spdlog::logger>("captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_));
    logger->set_pattern("%l: %v");
    spdlog::set_default_logger(logger);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const { return stream_.str(); }

  // Returns the number of warnings.
  size_t warnings() const {
    size_t count = 0;
    const std::string log = text();
    for (size_t at = log.find("warning: "); at != std::string::npos; at = log.find("warning: ", at + 1)) ++count;
    return count;
  }

 private:
  std::ostringstream stream_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace draftsmith
