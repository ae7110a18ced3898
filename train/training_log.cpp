#include "train/training_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/sha256.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace draftsmith::train {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kNeverTrim = -1;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
#endif
}

namespace {

using Json = nlohmann::ordered_json;
using Texts = std::map<std::string, std::string>;

// Settings that a run may change when it continues another; a name stands for its table too.
constexpr std::array kMayDiffer = {"length",       "optimizer.lr", "schedule",        "clip_norm",  "precision",
                                   "reduce_dtype", "nonfinite",    "nonfinite_limit", "validation", "keep"};
constexpr const char* kMayDifferText =
    "length, optimizer.lr, schedule, clip_norm, precision, reduce_dtype, nonfinite, nonfinite_limit, validation and "
    "keep may differ";
// Settings of a validation that change no measure.
constexpr std::array kNoMeasure = {"every", "patience"};

bool may_differ(const std::string& name) {
  return std::any_of(kMayDiffer.begin(), kMayDiffer.end(),
                     [&](const std::string& allowed) { return name == allowed || name.starts_with(allowed + "."); });
}

// Adds every value by its dotted name. Lists are values, and tables in them have sorted keys, as those of a file.
void flatten(const Json& json, const std::string& prefix, Texts& texts) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      flatten(value, prefix + key + ".", texts);
    } else {
      texts[prefix + key] = value.is_null() ? "none" : nlohmann::json::parse(value.dump()).dump();
    }
  }
}

Texts flattened(const Json& training) {
  Texts texts;
  flatten(training, "", texts);
  return texts;
}

Texts texts_at(const nlohmann::json& json, const std::string& key, const std::string& where, Problems& problems) {
  Texts texts;
  if (!json.contains(key)) {
    problems.add({.where = where, .what = "'" + key + "' is missing"});
    return texts;
  }
  for (const auto& [name, value] : json.at(key).items()) {
    if (value.is_string()) {
      texts[name] = value;
    } else {
      problems.add({.where = where, .what = "'" + key + "' does not hold texts", .found = value.dump()});
    }
  }
  return texts;
}

// The settings that decide a validation's measures. (Texts, since files do not keep the order of keys.)
Texts measures_of(const RunRecord& record) {
  Texts validation;
  if (record.training.contains("validation")) flatten(record.training.at("validation"), "", validation);
  for (const char* name : kNoMeasure) validation.erase(name);
  return validation;
}

std::string size_text(const data::Corpus& corpus) {
  return fmt::format("{}, {} of {}", corpus.size(), corpus.info().target_tokens, corpus.info().tokenizer_hash);
}

}  // namespace

RunRecord record_run(const TrainerInputs& inputs, const TrainOptions& options) {
  RunRecord record{.identity = sha256(inputs.identity + options_hash(options)),
                   .threads = at::get_num_threads(),
                   .training = options_to_json(options, /*results_only=*/true),
                   .inputs = inputs.shared,
                   .validated = inputs.validated};
  record.inputs["examples and tokens of the corpus"] = size_text(inputs.corpus);
  if (inputs.validation) record.validated["examples and tokens"] = size_text(*inputs.validation);
  return record;
}

void to_json(Json& json, const RunRecord& record) {
  json["identity"] = record.identity;
  json["threads"] = record.threads;
  json["training"] = record.training;
  json["inputs"] = record.inputs;
  json["validated"] = record.validated;
}

RunRecord run_record_from_json(const nlohmann::json& json, const std::string& where, Problems& problems) {
  JsonReader reader(json, where, problems);
  RunRecord record{.identity = reader.get_string("identity"), .threads = reader.get_int("threads", {.min = 1})};
  if (!json.is_object()) return record;
  if (json.contains("training") && json.at("training").is_object()) {
    record.training = Json::parse(json.at("training").dump());
  } else {
    problems.add({.where = where, .what = "'training' is no object with the run's settings"});
  }
  record.inputs = texts_at(json, "inputs", where, problems);
  record.validated = texts_at(json, "validated", where, problems);
  return record;
}

void check_continues(const RunRecord& own, const RunRecord& parent, Problems& problems) {
  const auto compare = [&](const std::string& where, const std::string& found, const std::string& expected,
                           const std::string& hint) {
    if (found == expected) return;
    problems.add({.where = where,
                  .what = "differs from the run that `continue_from` names",
                  .expected = expected,
                  .found = found,
                  .hint = hint});
  };
  Texts before = flattened(parent.training);
  for (const auto& [name, value] : flattened(own.training)) {
    if (!may_differ(name)) compare("training." + name, value, before[name], kMayDifferText);
  }
  for (const auto& [name, value] : own.inputs) {
    const auto found = parent.inputs.find(name);
    if (found != parent.inputs.end()) {
      compare(name, value, found->second, "a run that continues another has the same model and data");
    }
  }
}

bool validate_alike(const RunRecord& own, const RunRecord& parent) {
  return measures_of(own) == measures_of(parent) && own.validated == parent.validated;
}

namespace {

// The measures of one exit: into a log's line, TensorBoard and the console.
void add_exit(const ValidationResult::Exit& exit, nlohmann::ordered_json& values, std::vector<Scalar>& scalars,
              std::string& text) {
  const std::string name = fmt::format("exit_{}", exit.layer);
  nlohmann::ordered_json measures{{"layer", exit.layer}, {"loss", exit.loss}, {"accuracy", exit.accuracy}};
  if (exit.overlap) measures["overlap"] = *exit.overlap;
  values["exits"].push_back(std::move(measures));
  scalars.emplace_back("validation/" + name + "/loss", exit.loss);
  scalars.emplace_back("validation/" + name + "/accuracy", exit.accuracy);
  text += fmt::format("; exit {}: loss {:.4f}, accuracy {:.4f}", exit.layer, exit.loss, exit.accuracy);
  if (!exit.overlap) return;
  scalars.emplace_back("validation/" + name + "/overlap", *exit.overlap);
  text += fmt::format(", overlap {:.4f}", *exit.overlap);
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
  if (options.tensorboard) events_.emplace(directory / "tensorboard", options.last_step, options.validated);
  progress_ = std::make_unique<Progress>(ProgressOptions{.style = options.progress,
                                                         .title = "training",
                                                         .unit = "steps",
                                                         .total = options.total_steps,
                                                         .done_before = options.last_step});
}

void TrainingLog::advance(const StepMetrics& metrics) {
  std::string note = fmt::format("loss {:.3f}  lr {:.2e}  {} tokens/s", metrics.loss, metrics.lr,
                                 human_count(metrics.labels_per_second));
  if (metrics.waited) note += fmt::format("  waited {:.0f} %", 100 * *metrics.waited);
  progress_->set_note(std::move(note));
  progress_->advance();
}

void TrainingLog::add(const StepMetrics& metrics) {
  nlohmann::ordered_json line{{"step", metrics.step},
                              {"epochs", metrics.epochs},
                              {"labels", metrics.labels},
                              {"loss", metrics.loss},
                              {"lr", metrics.lr},
                              {"gradient_norm", metrics.gradient_norm},
                              {"gradient_norm_max", metrics.largest_norm},
                              {"clipped", metrics.clipped},
                              {"skipped", metrics.skipped},
                              {"tokens_per_second", metrics.labels_per_second},
                              {"seconds", metrics.seconds}};
  if (metrics.waited) line["waited"] = *metrics.waited;
  write_line(line);
  if (!events_) return;
  std::vector<Scalar> scalars{{"train/loss", metrics.loss},
                              {"train/lr", metrics.lr},
                              {"train/gradient_norm", metrics.gradient_norm},
                              {"train/gradient_norm_max", metrics.largest_norm},
                              {"train/clipped", metrics.clipped},
                              {"train/skipped", static_cast<double>(metrics.skipped)},
                              {"train/tokens_per_second", metrics.labels_per_second},
                              {"train/epochs", metrics.epochs}};
  if (metrics.waited) scalars.emplace_back("train/waited", *metrics.waited);
  // A skipped step has neither loss nor norm.
  std::erase_if(scalars, [](const Scalar& scalar) { return !std::isfinite(scalar.second); });
  events_->add(metrics.step, scalars);
}

void TrainingLog::add(const ValidatedStep& validated, const ValidationResult& result) {
  const int64_t step = validated.step;
  nlohmann::ordered_json values{{"loss", result.loss}, {"accuracy", result.accuracy}, {"labels", result.labels}};
  std::vector<Scalar> scalars{{"validation/loss", result.loss}, {"validation/accuracy", result.accuracy}};
  std::string text =
      fmt::format("step {}: validation loss {:.4f}, accuracy {:.4f}", step, result.loss, result.accuracy);
  const auto append = [&](const char* name, const std::optional<double>& value) {
    if (!value) return;
    values[name] = *value;
    scalars.emplace_back(std::string("validation/") + name, *value);
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
  for (const ValidationResult::Exit& exit : result.exits) add_exit(exit, values, scalars, text);
  nlohmann::ordered_json line{
      {"step", step}, {"validation", values}, {"best", validated.is_best}, {"validation_seconds", validated.seconds}};
  text += fmt::format(" ({:.1f} s", validated.seconds);
  if (result.decoding_seconds > 0) {
    line["decoding_seconds"] = result.decoding_seconds;
    text += fmt::format(", {:.1f} s of them decoding", result.decoding_seconds);
  }
  write_line(line);
  if (events_) events_->add(step, scalars);
  log_info("{}){}", text, validated.is_best ? " (best)" : "");
}

void TrainingLog::finish() {
  progress_->finish();
}

void TrainingLog::write_line(const nlohmann::ordered_json& line) {
  out_ << line.dump() << '\n';
  out_.flush();
  if (!out_) throw RunError(Problem{.where = file_.string(), .what = "writing the log failed"});
}

}  // namespace draftsmith::train
