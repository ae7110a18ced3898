// A measure that a program outside of Draftsmith computes: it reads one segment a line and answers one number a line.
// The score is the mean of the numbers, so that intervals, paired tests and choices work as for other metrics.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/metric.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

struct CommandOptions {
  std::string command = {};  // for /bin/sh
  std::string label = {};    // name of the score; empty: that of the program
  std::string input = "tsv";
  double point = 1;
  bool lower_is_better = false;
  double timeout = 600;  // seconds; 0: none
  static Fields<CommandOptions> fields();
};

// Returns why a score cannot have this name; empty if it can.
std::string defect_of_label(const std::string& label);

// Returns the name of the score of such options: the label, or the name of the command's program.
std::string command_label(const CommandOptions& options);

// Returns what the command reads, one line a segment.
//   tsv: hypothesis TAB reference [TAB reference ...], with blanks for tabs and newlines in them
//   jsonl: {"source": ..., "hypothesis": ..., "references": [...]}; no source if none is known
std::string command_input(const Segments& segments, const std::string& form);

// A command as a metric of tasks. Only statistics() and segment_statistics() run it. Errors of both: RunError for a
// command that fails, hangs, or answers with another number of lines or with something else than finite numbers.
class Command : public Metric {
 public:
  using Options = CommandOptions;
  static constexpr const char* kName = "command";
  explicit Command(Options options) : options_(std::move(options)) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override { return {command_label(options_)}; }
  double point() const override { return options_.point; }
  bool lower_is_better() const override { return options_.lower_is_better; }
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const override;
  LineStatistics segment_statistics(const Segments& segments) const override;
  double score(std::span<const double> sums, size_t which) const override;
  std::string signature(const References& references) const override;
  std::string text(std::span<const double> sums, const std::string& signature) const override;

 private:
  Options options_;
};

}  // namespace draftsmith::metrics
