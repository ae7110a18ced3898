// Starts `draftsmith train` as the processes of one job, as torchrun or srun would.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
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
  // Starts draftsmith with `arguments` and these environment variables beside the test's own.
  ProcessBeside(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables);
  ~ProcessBeside();
  ProcessBeside(const ProcessBeside&) = delete;
  ProcessBeside& operator=(const ProcessBeside&) = delete;

  void send(int signal) const { ::kill(process_, signal); }
  bool runs();
  // Lets every write fail that would make a file longer than this, as on a full disk. The process must ignore SIGXFSZ.
  void limit_files(uint64_t bytes) const;
  // Waits for the end. The exit code is 128 plus the signal of a killed process.
  ProgramResult wait();

 private:
  std::unique_ptr<TemporaryDirectory> folder_;
  pid_t process_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

class Job {
 public:
  // Starts a process of one thread with each of these arguments, on a free port.
  explicit Job(const std::vector<std::vector<std::string>>& arguments);
  // Starts `size` processes with the same arguments.
  Job(int size, const std::vector<std::string>& arguments)
      : Job(std::vector<std::vector<std::string>>(static_cast<size_t>(size), arguments)) {}

  ProcessBeside& process(int rank) { return *processes_.at(static_cast<size_t>(rank)); }
  // Waits for all processes.
  std::vector<ProgramResult> wait();

 private:
  std::vector<std::unique_ptr<ProcessBeside>> processes_;
};

}  // namespace draftsmith::test
