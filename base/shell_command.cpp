#include "base/shell_command.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith {
namespace {

constexpr size_t kKeptErrors = 4000;  // bytes
constexpr int kLook = 10;             // milliseconds between looks at signals, time and the command's end

RunError cannot(const std::string& what) {
  return RunError({.where = "/bin/sh", .what = what, .found = std::strerror(errno)});
}

// Pipe between this process and the command. Neither end passes to other commands.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw cannot("no pipe can be made");
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(ends_[0]); }
  void close_write() { close_end(ends_[1]); }

 private:
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

void make_nonblocking(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

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

class ShellProcess {
 public:
  explicit ShellProcess(const std::string& command) {
    start(command);
    in_.close_read();
    out_.close_write();
    err_.close_write();
    for (const int end : {in_.write_end(), out_.read_end(), err_.read_end()}) make_nonblocking(end);
  }
  ~ShellProcess() {
    if (process_ <= 0) return;
    kill_group();
    waitpid(process_, nullptr, 0);
  }
  ShellProcess(const ShellProcess&) = delete;
  ShellProcess& operator=(const ShellProcess&) = delete;

  ShellResult run(std::string_view input, const ShellLimits& limits) {
    const Stopwatch watch;
    ShellResult result;
    if (input.empty()) in_.close_write();
    while (true) {
      throw_if_stop_requested("the command was ended; what was measured before is kept");
      const bool ended = has_ended();  // before the last reading, so that nothing is lost
      exchange(input, ended ? 0 : kLook, result);
      result.too_long = result.output.size() > limits.output_bytes;
      result.timed_out = !ended && limits.seconds > 0 && watch.seconds() > limits.seconds;
      if (ended || result.too_long || result.timed_out) break;
    }
    kill_group();  // also what the command left in the background
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    if (result.timed_out || result.too_long) return result;
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    return result;
  }

 private:
  void start(const std::string& command) {
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
    std::string shell = "/bin/sh", option = "-c", text = command;
    char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
    errno = posix_spawn(&process_, shell.c_str(), &files, &attributes, arguments, environ);
    const int failed = errno;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (failed == 0) return;
    process_ = -1;
    errno = failed;
    throw cannot("the command cannot be started");
  }

  void kill_group() const { ::kill(-process_, SIGKILL); }

  // Returns whether the shell has ended. It stays a zombie, so that its group's number remains its own.
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }

  // Writes and reads what is possible at once, after waiting for it.
  void exchange(std::string_view& input, int milliseconds, ShellResult& result) {
    std::array<pollfd, 3> ends{pollfd{in_.write_end(), POLLOUT, 0}, pollfd{out_.read_end(), POLLIN, 0},
                               pollfd{err_.read_end(), POLLIN, 0}};  // poll() leaves out negative ends
    poll(ends.data(), ends.size(), milliseconds);
    if (ends[0].revents != 0) write_some(input);
    if (ends[1].revents != 0) read_all(out_, result.output);
    if (ends[2].revents != 0) read_all(err_, result.errors);
    if (result.errors.size() > kKeptErrors) result.errors.erase(0, result.errors.size() - kKeptErrors);
  }

  void write_some(std::string_view& input) {
    const NoPipeSignal no_signal;
    const ssize_t written = ::write(in_.write_end(), input.data(), input.size());
    if (written > 0) input.remove_prefix(static_cast<size_t>(written));
    const bool refused = written < 0 && errno != EAGAIN && errno != EINTR;
    if (refused || input.empty()) in_.close_write();
  }

  // Reads what is there, a megabyte at most so that limits are looked at in between; closes the pipe at its end.
  static void read_all(Pipe& pipe, std::string& text) {
    std::array<char, 65536> buffer{};
    for (int times = 0; times < 16; ++times) {
      const ssize_t read = ::read(pipe.read_end(), buffer.data(), buffer.size());
      if (read > 0) text.append(buffer.data(), static_cast<size_t>(read));
      if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) pipe.close_read();
      if (read <= 0) return;
    }
  }

  Pipe in_, out_, err_;
  pid_t process_ = -1;
};

}  // namespace

ShellResult run_shell(const std::string& command, std::string_view input, const ShellLimits& limits) {
  return ShellProcess(command).run(input, limits);
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:,@%=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace draftsmith
