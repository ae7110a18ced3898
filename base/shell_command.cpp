#include "base/shell_command.h"

#include <utility>

#include <sys/wait.h>

#include "base/child_process.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith {

ShellResult run_shell(const std::string& command, std::string_view input, const ShellLimits& limits) {
  constexpr int kLook = 10;  // milliseconds between looks at signals, time and the command's end
  ChildProcess process({"/bin/sh", "-c", command});
  const Stopwatch watch;
  ShellResult result;
  while (true) {
    throw_if_stop_requested("the command was ended; what was measured before is kept");
    if (input.empty()) process.close_input();
    const bool ended = process.has_ended();  // before the last reading, so that nothing is lost
    process.exchange(input, ended ? 0 : kLook);
    result.too_long = process.output.size() > limits.output_bytes;
    result.timed_out = !ended && limits.seconds > 0 && watch.seconds() > limits.seconds;
    if (ended || result.too_long || result.timed_out) break;
  }
  const int status = process.finish();
  result.output = std::move(process.output);
  result.errors = std::move(process.errors);
  if (result.timed_out || result.too_long) return result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:,@%=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace draftsmith
