// Commands of users, run by /bin/sh: a text on standard input, another one back from standard output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace draftsmith {

struct ShellLimits {
  double seconds = 0;                // the command is killed after this time; 0: never
  size_t output_bytes = 64'000'000;  // it is killed when it has written more than this
};

// End of a command, with what it wrote.
struct ShellResult {
  std::string output;
  std::string errors;      // end of its standard error
  int exit_code = 0;       // 0 if a signal killed it
  int signal = 0;          // signal that killed it; 0: none
  bool timed_out = false;  // killed for ShellLimits::seconds
  bool too_long = false;   // killed for ShellLimits::output_bytes

  bool succeeded() const { return exit_code == 0 && signal == 0 && !timed_out && !too_long; }
};

// Runs `/bin/sh -c command` in a process group of its own, which ends with the command. Writes and reads at the same
// time, so neither side waits for the other; a command may leave its input unread. Errors: Interrupted if a stop is
// requested meanwhile (base/signals.h), with the group killed; RunError if no process can be started.
ShellResult run_shell(const std::string& command, std::string_view input, const ShellLimits& limits = {});

// Returns the text as one word of a shell: as it is, or in single quotes.
std::string shell_word(const std::string& text);

}  // namespace draftsmith
