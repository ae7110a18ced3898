#include "base/child_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith {
namespace {

constexpr size_t kKeptErrors = 4000;  // bytes

// While it exists, this thread's writes to a closed pipe fail with EPIPE and raise no signal.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &earlier_);
  }
  ~NoPipeSignal() {
    const timespec none{};
    if (sigismember(&earlier_, SIGPIPE) == 0) sigtimedwait(&pipe_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &earlier_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t earlier_{};
};

// Reads what is there, a megabyte at most so that limits are looked at in between; closes the pipe at its end.
void read_all(Pipe& pipe, std::string& text) {
  std::array<char, 65536> buffer{};
  for (int times = 0; times < 16; ++times) {
    const ssize_t read = ::read(pipe.read_end(), buffer.data(), buffer.size());
    if (read > 0) text.append(buffer.data(), static_cast<size_t>(read));
    if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) pipe.close_read();
    if (read <= 0) return;
  }
}

// Errors: RunError where a child's end cannot be seen.
void require_seen_ends(const std::string& what) {
  struct sigaction action {};
  sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler != SIG_IGN) return;
  throw RunError({what, "cannot be run by a process that ignores SIGCHLD", "", "",
                  "signal.signal(signal.SIGCHLD, signal.SIG_DFL)"});
}

}  // namespace

Pipe::Pipe() {
  if (pipe2(ends_.data(), O_CLOEXEC) == 0) return;
  throw RunError({"pipe", "no pipe can be made", "", std::strerror(errno), ""});
}

Pipe::~Pipe() {
  close_read();
  close_write();
}

void Pipe::close_end(int& end) {
  if (end >= 0) ::close(end);
  end = -1;
}

ChildProcess::ChildProcess(std::vector<std::string> arguments) {
  start(std::move(arguments));
  in_.close_read();
  out_.close_write();
  err_.close_write();
  for (const int end : {in_.write_end(), out_.read_end(), err_.read_end()}) {
    fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
  }
}

ChildProcess::~ChildProcess() {
  if (process_ > 0) finish();
}

void ChildProcess::start(std::vector<std::string> arguments) {
  require_seen_ends(arguments.front());
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in_.read_end(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out_.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err_.write_end(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGXFSZ}) sigaddset(&usual, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int failed = posix_spawnp(&process_, arguments.front().c_str(), &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed == 0) return;
  process_ = -1;
  throw RunError({arguments.front(), "the program cannot be started", "", std::strerror(failed), ""});
}

int ChildProcess::finish() {
  ::kill(-process_, SIGKILL);
  int status = 255 << 8;  // if nobody can know
  waitpid(process_, &status, 0);
  process_ = -1;
  return status;
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) return info.si_pid != 0;
  return errno == ECHILD;  // somebody else in this process has waited for it
}

void ChildProcess::exchange(std::string_view& input, int milliseconds) {
  std::array<pollfd, 3> ends{pollfd{input.empty() ? -1 : in_.write_end(), POLLOUT, 0},
                             pollfd{out_.read_end(), POLLIN, 0},
                             pollfd{err_.read_end(), POLLIN, 0}};  // poll() leaves out negative ends
  poll(ends.data(), ends.size(), milliseconds);
  if (ends[0].revents != 0) write_some(input);
  if (ends[1].revents != 0) read_all(out_, output);
  if (ends[2].revents != 0) read_all(err_, errors);
  if (errors.size() > kKeptErrors) errors.erase(0, errors.size() - kKeptErrors);
}

void ChildProcess::write_some(std::string_view& input) {
  const NoPipeSignal no_signal;
  const ssize_t written = ::write(in_.write_end(), input.data(), input.size());
  if (written > 0) input.remove_prefix(static_cast<size_t>(written));
  if (written >= 0 || errno == EAGAIN || errno == EINTR) return;
  input = {};
  close_input();
}

ShellResult run_shell(const std::string& command, std::string_view input, const ShellLimits& limits) {
  constexpr int kLook = 10;  // milliseconds between looks at signals, time and the command's end
  ChildProcess process({"/bin/sh", "-c", command});
  const Stopwatch watch;
  ShellResult result;
  while (true) {
    throw_if_stop_requested("the command was ended; what was measured before is kept");
    work_point();
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

std::string run_in_copy(const std::function<std::string()>& work) {
  require_seen_ends("copy of this process");
  const std::unique_ptr<FILE, int (*)(FILE*)> result(std::tmpfile(), std::fclose);
  const pid_t id = result ? fork() : -1;
  if (id < 0) throw RunError({"fork", "no process can be made", "", std::strerror(errno), ""});
  // Ends the copy without destructors and buffers: those are the first one's.
  const auto work_as_copy = [&]() noexcept {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // or it would go on, with the first one's locks
    const std::string text = work();
    std::fwrite(text.data(), 1, text.size(), result.get());
    _exit(std::fflush(result.get()) == 0 ? 0 : 1);
  };
  if (id == 0) work_as_copy();
  int status = -1;
  try {
    while (waitpid(id, &status, WNOHANG) == 0) {
      work_point();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (...) {
    ::kill(id, SIGKILL);
    waitpid(id, nullptr, 0);
    throw;
  }
  if (status != 0) {
    throw RunError({"copy of this process", "it was killed", "", "", "is there too little memory?"});
  }
  std::fseek(result.get(), 0, SEEK_END);
  std::string text(static_cast<size_t>(std::ftell(result.get())), '\0');
  std::rewind(result.get());
  text.resize(std::fread(text.data(), 1, text.size(), result.get()));
  return text;
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:,@%=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

namespace {

constexpr size_t kMostLineBytes = 64'000'000;  // of an answer

std::string interpreter() {
  const char* chosen = std::getenv("DRAFTSMITH_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code ignored;
  std::string built_with(python_texts().front().text);
  return std::filesystem::exists(built_with, ignored) ? built_with : "python3";
}

// Returns the line of a request. Errors: UserError for a text in it that is no UTF-8.
std::string request_line(const nlohmann::ordered_json& request, const ScriptMessages& messages) {
  try {
    return request.dump() + "\n";
  } catch (const nlohmann::json::type_error& error) {
    throw UserError({messages.where, messages.what + ": a text that it is to read is no UTF-8", "", error.what(), ""});
  }
}

}  // namespace

PythonScript::PythonScript(std::span<const EmbeddedText> parts, ScriptMessages messages)
    : messages_(std::move(messages)) {
  std::string script(python_texts().back().text);
  for (const EmbeddedText& part : parts) script += part.text;
  try {
    python_ = std::make_unique<ChildProcess>(std::vector{interpreter(), std::string("-c"), script});
  } catch (const RunError& error) {
    fail_python(error.problems()[0].where + ": " + error.problems()[0].found);
  }
}

nlohmann::json PythonScript::ask(const nlohmann::ordered_json& request, double seconds) {
  constexpr int kLook = 10;  // milliseconds between looks at signals and time
  const std::string text = request_line(request, messages_);
  std::string_view rest = text;
  nlohmann::json error;
  const Stopwatch watch;
  python_->output.clear();
  while (!python_->output.ends_with('\n') && error.is_null()) {
    throw_if_stop_requested("the Python script was ended");
    const bool ended = python_->has_ended();  // before the last reading, so that nothing is lost
    python_->exchange(rest, ended ? 0 : kLook);
    if (python_->output.ends_with('\n')) break;
    if (ended) {
      const int status = python_->finish();
      fail_python(WIFSIGNALED(status) ? fmt::format("it was ended by signal {}", WTERMSIG(status))
                                      : fmt::format("exit code {}: {}", WEXITSTATUS(status), python_->errors));
    }
    if (python_->output.size() > kMostLineBytes) error["what"] = "an answer has more than 64 MB";
    if (watch.seconds() > seconds) error["what"] = fmt::format("it takes longer than {:g} seconds", seconds);
  }
  nlohmann::json answered = nlohmann::json::parse(error.is_null() ? python_->output : "{}", nullptr, false);
  if (answered.is_object() && answered.contains("missing")) fail_python(answered["missing"].get<std::string>());
  if (answered.is_object() && answered.contains("text")) return answered["text"];
  if (answered.is_object() && answered.contains("error")) error = answered["error"];
  if (error.is_null()) fail_python("an answer that is none: " + python_->output.substr(0, 100));
  const int line = error.value("line", 0);
  throw UserError({messages_.where + (line > 0 ? ":" + std::to_string(line) : ""),
                   messages_.what + ": " + error.value("what", ""), error.value("expected", ""),
                   error.value("found", ""), error.value("hint", "")});
}

void PythonScript::fail_python(const std::string& found) const {
  throw UserError({messages_.where, messages_.what + ", since Python's " + messages_.module + " does not run",
                   messages_.module + " in " + interpreter(), found,
                   "pip install " + messages_.module +
                       ", or name an interpreter that has it in the environment variable DRAFTSMITH_PYTHON"});
}

}  // namespace draftsmith
