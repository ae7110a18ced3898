#include "train/training_log.h"

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"

namespace draftsmith::train {
namespace {

// The measures of one exit: into a log's line and the console.
void add_exit(const ValidationResult::Exit& exit, nlohmann::ordered_json& values, std::string& text) {
  nlohmann::ordered_json measures{{"layer", exit.layer}, {"loss", exit.loss}, {"accuracy", exit.accuracy}};
  text += fmt::format("; exit {}: loss {:.4f}, accuracy {:.4f}", exit.layer, exit.loss, exit.accuracy);
  if (exit.overlap) {
    measures["overlap"] = *exit.overlap;
    text += fmt::format(", overlap {:.4f}", *exit.overlap);
  }
  values["exits"].push_back(std::move(measures));
}

}  // namespace

void truncate_metrics(const std::filesystem::path& file, int64_t last_step, bool validated) {
  if (!std::filesystem::exists(file)) return;
  const std::string content = read_file(file);
  std::string kept;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = content.substr(begin, end + 1 - begin);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const int64_t step = json.is_object() ? json.value("step", last_step + 1) : last_step + 1;
    if (step > last_step || (step == last_step && !validated && json.contains("validation"))) break;
    kept += line;
    begin = end + 1;
  }
  if (kept.size() != content.size()) write_file_atomic(file, kept);
}

void write_validation_summary(const std::filesystem::path& directory, int64_t kept) {
  const std::filesystem::path file = directory / "metrics.jsonl";
  nlohmann::ordered_json summary{{"model", nullptr}, {"last", nullptr}};
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("validation")) continue;
    nlohmann::ordered_json measures{{"step", json.at("step")}};
    measures.update(json.at("validation"));
    if (json.at("step") == kept) summary["model"] = measures;
    summary["last"] = std::move(measures);
  }
  if (summary["model"].is_null()) {
    throw RunError({.where = file.string(),
                    .what = "the log has lost a validation",
                    .expected = fmt::format("a line of step {}", kept)});
  }
  write_json(directory / "validation.json", summary);
}

TrainingLog::TrainingLog(const std::filesystem::path& directory, const TrainingLogOptions& options)
    : file_(directory / "metrics.jsonl") {
  make_directories(directory);
  truncate_metrics(file_, options.last_step, options.validated);
  out_.open(file_, std::ios::app);
  if (!out_) throw UserError(Problem{.where = file_.string(), .what = "the log cannot be opened for writing"});
  progress_ = std::make_unique<Progress>(ProgressOptions{.style = options.progress,
                                                         .title = "training",
                                                         .unit = "steps",
                                                         .total = options.total_steps,
                                                         .done_before = options.last_step});
}

void TrainingLog::advance(const nlohmann::ordered_json& measures) {
  const auto number = [&](const char* key) { return measures.at(key).get<double>(); };
  std::string note = fmt::format("loss {:.3f}  lr {:.2e}  {} tokens/s", number("loss"), number("lr"),
                                 human_count(number("tokens_per_second")));
  if (measures.contains("waited")) note += fmt::format("  waited {:.0f} %", 100 * number("waited"));
  progress_->set_note(std::move(note));
  progress_->advance();
}

void TrainingLog::add(const nlohmann::ordered_json& measures) {
  out_ << measures.dump() << '\n';
  out_.flush();
  if (!out_) throw RunError(Problem{.where = file_.string(), .what = "writing the log failed"});
}

void TrainingLog::add(int64_t step, const ValidationResult& result, bool is_best, double seconds) {
  nlohmann::ordered_json values{{"loss", result.loss}, {"accuracy", result.accuracy}, {"labels", result.labels}};
  std::string text =
      fmt::format("step {}: validation loss {:.4f}, accuracy {:.4f}", step, result.loss, result.accuracy);
  const auto append = [&](const char* name, const std::optional<double>& value) {
    if (!value) return;
    values[name] = *value;
    text += fmt::format(", {} {:.4f}", name, *value);
  };
  append("bleu", result.bleu);
  append("overlap", result.overlap);
  if (result.drafts) {
    append("agreement", result.drafts->agreement);
    append("alpha_forced", result.drafts->alpha_forced);
    append("alpha", result.drafts->alpha);
    append("tokens_per_target_run", result.drafts->tokens_per_target_run);
  }
  append("weighted_loss", result.weighted_loss);
  for (const ValidationResult::Exit& exit : result.exits) add_exit(exit, values, text);
  nlohmann::ordered_json line{
      {"step", step}, {"validation", values}, {"best", is_best}, {"validation_seconds", seconds}};
  text += fmt::format(" ({:.1f} s", seconds);
  if (result.decoding_seconds > 0) {
    line["decoding_seconds"] = result.decoding_seconds;
    text += fmt::format(", {:.1f} s of them decoding", result.decoding_seconds);
  }
  add(line);
  log_info("{}){}", text, is_best ? " (best)" : "");
}

void TrainingLog::finish() {
  progress_->finish();
}

}  // namespace draftsmith::train
