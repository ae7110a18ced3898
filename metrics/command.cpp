// The metric `command`: a program reads one segment a line and answers one number a line. The score is the mean of the
// numbers, so that intervals, paired tests and choices work as for other metrics.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/error.h"
#include "base/util.h"
#include "metrics/metric.h"

namespace draftsmith::metrics {
namespace {

constexpr size_t kLongestLabel = 16;        // columns of a table
constexpr size_t kOutputOfALine = 1000;     // bytes: more is no number
constexpr size_t kLeastOutput = 1'000'000;  // bytes that any command may write
constexpr size_t kShownErrors = 600;        // bytes of a command's standard error in messages
constexpr const char* kInputHint =
    "it reads one segment a line on standard input and writes one number a line to standard output";

bool fits_label(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
}

// Returns the program's name in a command: the first word that sets no variable, without its folders.
std::string program_of(const std::string& command) {
  std::istringstream words(command);
  std::string word;
  while (words >> word && word.find('=') != std::string::npos) word.clear();
  std::string name = word.substr(word.rfind('/') + 1).substr(0, kLongestLabel);
  std::ranges::replace_if(
      name, [](char c) { return !fits_label(c); }, '_');
  return name;
}

std::string with_blanks(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Returns the end of a command's standard error, in whole lines.
std::string shown_errors(const std::string& errors) {
  std::string text = errors;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  if (text.size() > kShownErrors) {
    text.erase(0, text.size() - kShownErrors);
    text.erase(0, std::min(text.find('\n') + 1, text.size()));
  }
  return text.empty() ? "; its standard error is empty" : "; its standard error ends in:\n" + text;
}

// Run of a command on some lines, with messages of what it does wrong.
struct CommandRun {
  const CommandOptions& options;
  int64_t lines;
  ShellResult result;

  RunError error(const std::string& what, const std::string& expected, const std::string& found,
                 const std::string& hint = kInputHint) const {
    return RunError({.where = fmt::format("the metric's command `{}`", options.command),
                     .what = what,
                     .expected = expected,
                     .found = found,
                     .hint = hint});
  }

  void require_success() const {
    const std::string expected = fmt::format("{} numbers and exit code 0", lines);
    if (result.timed_out) {
      throw error("the command took too long and was killed", fmt::format("its end within {:g} s", options.timeout),
                  fmt::format("{} of {} lines{}", lines_of(result.output).size(), lines, shown_errors(result.errors)),
                  "metric.timeout is the limit in seconds, 0 for none");
    }
    if (result.too_long) {
      throw error("the command wrote without end and was killed", expected,
                  fmt::format("{} bytes", result.output.size()));
    }
    if (result.signal != 0) {
      throw error("the command was killed by a signal", expected,
                  fmt::format("signal {} ({}){}", result.signal, strsignal(result.signal), shown_errors(result.errors)),
                  result.signal == SIGKILL ? "is the memory too small for it?" : "run it by hand to see why");
    }
    if (result.exit_code == 0) return;
    const bool missing = result.exit_code == 127;
    throw error("the command failed", expected,
                fmt::format("exit code {}{}", result.exit_code, shown_errors(result.errors)),
                missing ? "is the program installed, and found in PATH?" : "run it by hand to see why");
  }

  double number_at(std::string_view line, size_t index) const {
    std::string_view text = stripped(line);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto number = parse_whole<double>(text);
    if (number && std::isfinite(*number)) return *number;
    throw error(fmt::format("line {} of the command's output is no number", index + 1), "one finite number a line",
                fmt::format("'{}'", line.substr(0, 80)));
  }

  LineStatistics statistics() const {
    const auto answers = lines_of(result.output);
    LineStatistics statistics{.width = 2, .values = {}};
    const size_t known = std::min(answers.size(), static_cast<size_t>(lines));
    for (size_t i = 0; i < known; ++i) {
      statistics.values.push_back(number_at(answers[i], i));
      statistics.values.push_back(1);
    }
    if (std::ssize(answers) == lines) return statistics;
    throw error(
        std::ssize(answers) < lines ? "the command answered too few lines" : "the command answered too many lines",
        fmt::format("{} lines, one a segment", lines),
        fmt::format("{} lines{}", answers.size(), shown_errors(result.errors)));
  }
};

class Command : public Metric {
 public:
  explicit Command(const CommandOptions& options) : options_(options) {}

  std::string name() const override { return "command"; }
  std::vector<std::string> scores() const override { return {command_label(options_)}; }
  double point() const override { return options_.point; }
  bool lower_is_better() const override { return options_.lower_is_better; }

  // Runs the command. Each line has its number, then 1.
  LineStatistics statistics(const Segments& segments) const override {
    const size_t lines = segments.hypotheses.size();
    if (segments.references.size() != lines || (!segments.sources.empty() && segments.sources.size() != lines)) {
      throw std::logic_error("command metric: the numbers of lines differ");
    }
    if (lines == 0) return {.width = 2, .values = {}};
    const ShellLimits limits{.seconds = options_.timeout,
                             .output_bytes = std::max(kLeastOutput, lines * kOutputOfALine)};
    const CommandRun run{options_, static_cast<int64_t>(lines),
                         run_shell(options_.command, command_input(segments, options_.input), limits)};
    run.require_success();
    return run.statistics();
  }

  double score(std::span<const double> sums, size_t /*which*/) const override {
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
  }

  std::string signature(const References& references) const override {
    return fmt::format("nrefs:{}|command:{}|input:{}|lines:mean|version:{}", reference_count(references),
                       with_blanks(options_.command), options_.input, kMetricsVersion);
  }

  std::string text(std::span<const double> sums, const std::string& signature) const override {
    return fmt::format("{}|{} = {:.{}f}\n", command_label(options_), signature, score(sums, 0), digits());
  }

 private:
  CommandOptions options_;
};

}  // namespace

std::unique_ptr<const Metric> make_command(const MetricOptions& options) {
  return std::make_unique<Command>(options);
}

std::string defect_of_label(const std::string& label) {
  if (label.empty() || label.size() > kLongestLabel) return fmt::format("1 to {} characters", kLongestLabel);
  if (!std::ranges::all_of(label, fits_label)) return "letters, digits, '-', '_', '.' and '+'";
  // Keys of results.json beside the scores.
  if (label == "difference" || label == "p_value" || label.ends_with("_ci95")) return "another name than results have";
  return "";
}

std::string command_label(const CommandOptions& options) {
  if (!options.label.empty()) return options.label;
  const std::string program = program_of(options.command);
  return defect_of_label(program).empty() ? program : "command";
}

std::string command_input(const Segments& segments, const std::string& form) {
  std::string text;
  for (size_t line = 0; line < segments.hypotheses.size(); ++line) {
    if (form == "jsonl") {
      nlohmann::ordered_json json = nlohmann::ordered_json::object();
      if (!segments.sources.empty()) json["source"] = segments.sources[line];
      json["hypothesis"] = segments.hypotheses[line];
      json["references"] = segments.references[line];
      text += json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    } else {
      text += with_blanks(segments.hypotheses[line]);
      for (const std::string& reference : segments.references[line]) text += "\t" + with_blanks(reference);
    }
    text += "\n";
  }
  return text;
}

}  // namespace draftsmith::metrics
