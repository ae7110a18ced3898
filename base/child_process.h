// Programs that this one runs: child processes, commands of a shell, copies of itself, and Python scripts.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include "base/util.h"

namespace draftsmith {

// Pipe between this process and another one. Neither end passes to other programs.
class Pipe {
 public:
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(ends_[0]); }
  void close_write() { close_end(ends_[1]); }

 private:
  static void close_end(int& end);
  std::array<int, 2> ends_{-1, -1};
};

// Program in a process group of its own. The group ends with this object, and leaves no zombie.
class ChildProcess {
 public:
  // Starts the program `arguments[0]`, a path or a name in PATH; no shell reads the arguments. Errors: RunError that
  // says why it cannot be started.
  explicit ChildProcess(std::vector<std::string> arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits until something can be written or read, then does what is possible at once: takes what was written off
  // `input`, and appends what was read to output and errors. All input is dropped if the program reads no more.
  void exchange(std::string_view& input, int milliseconds);
  void close_input() { in_.close_write(); }

  // Returns whether the program has ended. It stays a zombie until finish(), so that its group's number stays its own.
  bool has_ended() const;
  // Kills the group, also what the program left in the background. Returns the program's status as waitpid() does.
  int finish();

  std::string output;
  std::string errors;  // the end of standard error

 private:
  void start(std::vector<std::string> arguments);
  void write_some(std::string_view& input);

  Pipe in_, out_, err_;
  pid_t process_ = -1;
};

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

// Returns what `work`, which throws nothing, returns in a copy of this process, without its other threads. For calls of
// libraries that look at no signal: when long work ends (base/signals.h), the copy is killed. Errors: Interrupted;
// RunError if the copy was killed.
std::string run_in_copy(const std::function<std::string()>& work);

// Returns the text as one word of a shell: as it is, or in single quotes.
std::string shell_word(const std::string& text);

// ---- Python scripts, which the program holds as texts
// A script runs in a process of its own, reads lines of JSON, and answers each by one: an object with the result under
// "text", with "error" (what, expected, found, hint, line), or with "missing", the module that it lacks.

// "python": the path of the build's interpreter.
std::span<const EmbeddedText> python_texts();

// Words of the error messages about a script.
struct ScriptMessages {
  std::string where;   // the file that it works on
  std::string what;    // "the chat template cannot be rendered"
  std::string module;  // "jinja2"
};

class PythonScript {
 public:
  // Starts $DRAFTSMITH_PYTHON, the interpreter of the build's .venv, or python3 in PATH, with the parts of a script.
  // The process ends with this object. Errors: UserError if it cannot be started.
  PythonScript(std::span<const EmbeddedText> parts, ScriptMessages messages);

  // Returns what stands under "text" in the answer. Errors, after which the script is of no use: UserError for the
  // script's own, and if it ends, lacks a module or takes longer than `seconds`; Interrupted.
  nlohmann::json ask(const nlohmann::ordered_json& request, double seconds = std::numeric_limits<double>::infinity());

 private:
  [[noreturn]] void fail_python(const std::string& found) const;

  ScriptMessages messages_;
  std::unique_ptr<ChildProcess> python_;
};

}  // namespace draftsmith
