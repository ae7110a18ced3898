// Parts of an evaluation that failed without losing the others.
#pragma once

#include <string>

namespace draftsmith::evaluate {

// Setting that a task's results lack, or lack a part of, with the reason.
struct SettingFailure {
  std::string setting;  // its name in the results, or "drafter NAME" for measurements of a drafter
  // "decoding", "timing", "scoring", "choosing", "teacher-forced passes", "step times", "checks", "examples"
  std::string during;
  std::string message;  // one line
};

}  // namespace draftsmith::evaluate
