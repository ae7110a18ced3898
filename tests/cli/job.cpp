#include "tests/cli/job.h"

#include <stdexcept>

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/paths.h"
#include "tests/support/worlds.h"

namespace draftsmith::test {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

ProcessBeside::ProcessBeside(const std::vector<std::string>& arguments,
                             const std::map<std::string, std::string>& variables)
    : folder_(std::make_unique<TemporaryDirectory>()) {
  std::vector<std::string> line{draftsmith_binary()};
  line.insert(line.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment;
  for (char** own = environ; *own != nullptr; ++own) environment.emplace_back(*own);
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  const std::string out = *folder_ / "out", err = *folder_ / "err";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0644);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0644);
  const int failed = posix_spawn(&process_, line.front().c_str(), &files, nullptr, pointers(line).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw std::runtime_error("cannot start " + line.front());
}

ProcessBeside::~ProcessBeside() {
  if (!runs()) return;
  send(SIGKILL);
  wait();
}

bool ProcessBeside::runs() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
  return !ended_;
}

void ProcessBeside::limit_files(uint64_t bytes) const {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  if (::prlimit(process_, RLIMIT_FSIZE, &limit, nullptr) != 0) throw std::runtime_error("cannot limit a process");
}

ProgramResult ProcessBeside::wait() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, 0) == process_;
  return {.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
          .out = read_file(*folder_ / "out"),
          .err = read_file(*folder_ / "err")};
}

Job::Job(const std::vector<std::vector<std::string>>& arguments) {
  const std::string port = std::to_string(testing_support::free_port());
  for (size_t rank = 0; rank < arguments.size(); ++rank) {
    processes_.push_back(std::make_unique<ProcessBeside>(
        arguments[rank], std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                            {"WORLD_SIZE", std::to_string(arguments.size())},
                                                            {"MASTER_ADDR", "127.0.0.1"},
                                                            {"MASTER_PORT", port},
                                                            {"OMP_NUM_THREADS", "1"}}));
  }
}

std::vector<ProgramResult> Job::wait() {
  std::vector<ProgramResult> results;
  for (const auto& process : processes_) results.push_back(process->wait());
  return results;
}

}  // namespace draftsmith::test
