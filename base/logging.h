// Messages and progress on standard error; standard output is for results alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/signals.h"

namespace draftsmith {

// Leaves out the messages of log_info() from now on, or writes them again: --quiet.
void set_quiet(bool quiet);

// Takes lines in place of standard error from now on, for tests; an empty one gives them back.
void set_log_sink(std::function<void(const std::string& line)> sink);

namespace logging_detail {
void write_line(const char* level, fmt::string_view format, fmt::format_args values);
void write_warning_once(fmt::string_view format, fmt::format_args values);
}  // namespace logging_detail

// Write a line; that of a warning begins with "warning: ". Any thread.
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  logging_detail::write_line("", format, fmt::make_format_args(args...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  logging_detail::write_line("warning: ", format, fmt::make_format_args(args...));
}
// Warns unless this process has written the same line: of what is read many times.
template <class... Args>
void log_warning_once(fmt::format_string<Args...> format, Args&&... args) {
  logging_detail::write_warning_once(format, fmt::make_format_args(args...));
}

// Progress of long work: a bar with rate and time left on a terminal, a plain line every ten seconds elsewhere, nothing
// with --quiet.
enum class ProgressStyle { kBar, kLines, kQuiet };

// Returns kQuiet if `quiet` or after set_quiet(true), else kBar on a terminal, else kLines.
ProgressStyle progress_style(bool quiet = false);

struct ProgressOptions {
  ProgressStyle style = progress_style();
  std::string title = {};   // "tokenizing"
  std::string unit = {};    // unit of the counts: "lines", "tokens"; empty: only the time is known
  int64_t total = 0;        // 0: unknown, no bar and no time left
  int64_t done_before = 0;  // finished in an earlier run: counts as done, but not in the rate
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Sink = std::function<void(const std::string&)>;

  explicit Progress(ProgressOptions options);
  // Is long work (base/signals.h), too, at whose points it prints; `saved` as for Interrupted.
  Progress(ProgressOptions options, std::string saved);
  // Takes a clock and an output, for tests.
  Progress(ProgressOptions options, std::function<Clock::time_point()> now, Sink sink);
  // Ends the line of an unfinished bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Counts `count` more as done. Frequent calls are cheap: a line is printed only when it is due.
  void advance(int64_t count = 1);
  // Prints a line if one is due. Long work calls it at its points (base/signals.h).
  void tick();
  // Sets the text at the end of the line: "loss 2.31".
  void set_note(std::string note) { note_ = std::move(note); }
  // Prints the last line with the total time; later calls do nothing.
  void finish();

 private:
  std::string line(Clock::time_point now) const;
  void print(Clock::time_point now);

  ProgressOptions options_;
  std::function<Clock::time_point()> now_;
  Sink sink_;
  int64_t done_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_print_;
  bool bar_is_open_ = false;
  bool finished_ = false;
  std::string note_;
  std::optional<LongWork> work_;
};

// Returns a duration as text: "1h02m", "3m07s", "42s", "0.8s".
std::string human_duration(double seconds);

// Returns a count or rate in few characters: "1.25M", "63.0k", "421", "0.53".
std::string human_count(double count);

}  // namespace draftsmith
