// Messages of the log, for tests that expect warnings.
#pragma once

#include <string>

#include "base/logging.h"

namespace draftsmith {

// Collects what is logged while it lives, in place of writing it.
class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](const std::string& line) { text_ += line; });
  }
  ~CapturedLog() { set_log_sink({}); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  const std::string& text() const { return text_; }

  // Returns the number of warnings.
  size_t warnings() const {
    size_t count = 0;
    for (size_t at = text_.find("warning: "); at != std::string::npos; at = text_.find("warning: ", at + 1)) ++count;
    return count;
  }

 private:
  std::string text_;
};

}  // namespace draftsmith
