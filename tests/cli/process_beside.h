// A program that runs beside a test.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/files.h"
#include "tests/cli/program.h"

namespace draftsmith::test {

// One process that runs beside the test; killed at the end if it still runs.
class ProcessBeside {
 public:
  // Starts a program with its arguments.
  explicit ProcessBeside(std::vector<std::string> line);
  ~ProcessBeside();
  ProcessBeside(const ProcessBeside&) = delete;
  ProcessBeside& operator=(const ProcessBeside&) = delete;

  void send(int signal) const { ::kill(process_, signal); }
  bool runs();
  // Returns the processes that it has started.
  std::vector<pid_t> children() const;
  // Waits for the end. The exit code is 128 plus the signal of a killed process.
  ProgramResult wait();

 private:
  std::unique_ptr<TemporaryDirectory> folder_;
  pid_t process_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace draftsmith::test
