// Another program with pipes to its standard input, output and error.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

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

}  // namespace draftsmith
