#include "base/logging.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "base/utf8.h"

namespace draftsmith {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
constexpr int kBarCells = 24;
constexpr size_t kLineWidth = 100;

void to_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::atomic<bool> quiet_log = false;
std::mutex log_mutex;
std::function<void(const std::string&)> log_sink = to_stderr;

}  // namespace

void set_quiet(bool quiet) {
  quiet_log = quiet;
}

void set_log_sink(std::function<void(const std::string& line)> sink) {
  const std::scoped_lock lock(log_mutex);
  log_sink = sink ? std::move(sink) : to_stderr;
}

namespace logging_detail {

void write_line(const char* level, fmt::string_view format, fmt::format_args values) {
  if (quiet_log && *level == '\0') return;  // a message, no warning
  const std::string line = level + fmt::vformat(format, values) + "\n";
  const std::scoped_lock lock(log_mutex);
  log_sink(line);
}

void write_warning_once(fmt::string_view format, fmt::format_args values) {
  static std::mutex mutex;
  static std::set<std::string> written;
  const std::string text = fmt::vformat(format, values);
  {
    const std::scoped_lock lock(mutex);
    if (!written.insert(text).second) return;
  }
  log_warning("{}", text);
}

}  // namespace logging_detail

ProgressStyle progress_style(bool quiet) {
  if (quiet || quiet_log) return ProgressStyle::kQuiet;
  return isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kLines;
}

Progress::Progress(ProgressOptions options) : Progress(std::move(options), Clock::now, to_stderr) {}

Progress::Progress(ProgressOptions options, std::function<Clock::time_point()> now, Sink sink)
    : options_(std::move(options)), now_(std::move(now)), sink_(std::move(sink)), done_(options_.done_before) {
  begin_ = last_print_ = now_();
}

Progress::Progress(ProgressOptions options, std::string saved) : Progress(std::move(options)) {
  work_.emplace(std::move(saved), [this] { tick(); });
}

Progress::~Progress() {
  if (bar_is_open_) sink_("\n");
}

void Progress::advance(int64_t count) {
  done_ += count;
  tick();
}

void Progress::tick() {
  if (finished_ || options_.style == ProgressStyle::kQuiet) return;
  const auto now = now_();
  const auto since = now - last_print_;
  if (options_.style == ProgressStyle::kBar ? since >= kBarInterval : since >= kLineInterval) print(now);
}

void Progress::finish() {
  if (finished_ || options_.style == ProgressStyle::kQuiet) return;
  finished_ = true;
  print(now_());
  if (bar_is_open_) sink_("\n");
  bar_is_open_ = false;
}

void Progress::print(Clock::time_point now) {
  last_print_ = now;
  const std::string text = line(now);
  if (options_.style == ProgressStyle::kBar) {
    sink_("\r" + text + "\x1b[K");
    bar_is_open_ = true;
  } else {
    sink_(text + "\n");
  }
}

std::string Progress::line(Clock::time_point now) const {
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double rate = elapsed > 0 ? static_cast<double>(done_ - options_.done_before) / elapsed : 0;
  std::string text = options_.title;
  if (options_.total > 0) {
    const double part = std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0);
    if (options_.style == ProgressStyle::kBar) {
      const int filled = static_cast<int>(part * kBarCells);
      text += fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '#'),
                          std::string(static_cast<size_t>(kBarCells - filled), '.'));
    }
    text += fmt::format(" {:3.0f}% {}/{}", std::floor(100 * part), human_count(static_cast<double>(done_)),
                        human_count(static_cast<double>(options_.total)));
  } else if (!options_.unit.empty()) {
    text += fmt::format(" {}", human_count(static_cast<double>(done_)));
  }
  if (!options_.unit.empty()) text += " " + options_.unit;
  if (rate > 0) text += fmt::format(", {}/s", human_count(rate));
  if (finished_) {
    text += ", took " + human_duration(elapsed);
  } else if (options_.total > done_ && rate > 0) {
    text += ", " + human_duration(static_cast<double>(options_.total - done_) / rate) + " left";
  } else if (rate == 0) {
    text += ", " + human_duration(elapsed) + " so far";
  }
  // A longer note would wrap the bar onto a second line.
  if (!note_.empty() && display_width(text) + display_width(note_) + 2 <= kLineWidth) text += ", " + note_;
  return text;
}

std::string human_duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string human_count(double count) {
  if (count != std::floor(count) && std::abs(count) < 9.995) return fmt::format("{:.2f}", count);
  if (std::abs(count) < 9999.5) return fmt::format("{:.0f}", count);
  const char* unit = "k";
  double value = count / 1e3;
  for (const char* next : {"M", "G", "T"}) {
    if (std::abs(value) < 999.5) break;
    value /= 1e3;
    unit = next;
  }
  const int digits = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, unit);
}

}  // namespace draftsmith
