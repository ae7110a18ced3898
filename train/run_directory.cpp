#include "train/run_directory.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"

namespace draftsmith::train {
namespace {

// Visits the name and the place of each counter but `best_value`.
template <class State, class Visit>
void each_counter(State& state, const Visit& visit) {
  visit("step", state.step);
  visit("micro_step", state.micro_step);
  visit("epoch", state.position.epoch);
  visit("batch", state.position.batch);
  visit("epochs", state.epochs);
  visit("labels", state.labels);
  visit("examples", state.examples);
  visit("seconds", state.seconds);
  visit("window_loss", state.window_loss);
  visit("window_labels", state.window_labels);
  visit("window_divisor", state.window_divisor);
  visit("window_seconds", state.window_seconds);
  visit("window_updates", state.window_updates);
  visit("window_clipped", state.window_clipped);
  visit("window_largest_norm", state.window_largest_norm);
  visit("validations", state.validations);
  visit("best_step", state.best_step);
  visit("since_best", state.since_best);
  visit("validation_due", state.validation_due);
  visit("finished", state.finished);
}

}  // namespace

Progressed TrainingState::progressed() const {
  return {.steps = static_cast<double>(step), .epochs = epochs, .labels = static_cast<double>(labels)};
}

void to_json(nlohmann::json& json, const TrainingState& state) {
  each_counter(state, [&](const char* name, const auto& value) { json[name] = value; });
  if (state.best_value) json["best_value"] = *state.best_value;
}

void from_json(const nlohmann::json& json, TrainingState& state) {
  each_counter(state, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  if (json.contains("best_value")) state.best_value = json.at("best_value").get<double>();
}

namespace {

constexpr const char* kStepPrefix = "step-";
constexpr const char* kTemporary = ".step-";
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kDone = "DONE";
constexpr int64_t kFormatVersion = 1;

// Removes what begins with `prefix` in the folder, but `keep` and links.
void remove_others(const std::filesystem::path& folder, const std::string& prefix, const std::filesystem::path& keep) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const bool ours = entry.path().filename().string().starts_with(prefix) && !entry.is_symlink();
    if (ours && entry.path() != keep) std::filesystem::remove_all(entry.path());
  }
}

void save_optimizer(const std::filesystem::path& file, const Optimizer& optimizer) {
  std::vector<model::TensorToStore> tensors;
  for (const auto& [name, tensor] : optimizer.state()) tensors.push_back({name, tensor, tensor.scalar_type()});
  model::write_safetensors(file, std::move(tensors));
}

void load_optimizer(const std::filesystem::path& file, Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  const model::SafetensorsFile stored(file);
  for (const auto& [name, tensor] : optimizer.state()) {
    const auto entry = stored.tensors().find(name);
    if (entry == stored.tensors().end() || entry->second.shape != tensor.sizes().vec()) {
      throw UserError({.where = file.string(),
                       .what = "the optimizer's state does not fit this run",
                       .expected = name + " " + model::shape_text(tensor.sizes()),
                       .found = entry == stored.tensors().end() ? "none" : model::shape_text(entry->second.shape)});
    }
    at::Tensor own = tensor;
    own.copy_(stored.stored(name));
    stored.forget_pages();
  }
}

void require_same(const std::string& what, const std::string& found, const std::string& expected,
                  const std::filesystem::path& checkpoint) {
  if (found == expected) return;
  throw UserError(
      {checkpoint.string(), what, expected, found, "train in another directory, or remove this one to start anew"});
}

void warn_of_threads(int64_t before) {
  const int64_t now = at::get_num_threads();
  if (before == now) return;
  log_warning(
      "the run went on with {} threads until now, and with {} from here on: sums are rounded otherwise, so the "
      "result is not bit for bit that of an uninterrupted run (--threads {})",
      before, now, before);
}

}  // namespace

void CheckpointFolder::write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
                             const model::SaveOptions& save) const {
  const std::string number = fmt::format("{:09}", state.step);
  const std::filesystem::path final_path = folder_ / (kStepPrefix + number);
  const nlohmann::ordered_json json{{"format_version", kFormatVersion},
                                    {"identity", identity_},
                                    {"threads", at::get_num_threads()},
                                    {"bf16", bf16_},
                                    {"state", nlohmann::json(state)}};
  // If it is written, the run went on from this very checkpoint and only validated since: weights and optimizer are
  // those in it.
  if (std::filesystem::exists(final_path / kDone)) {
    write_json(final_path / kState, json);
  } else {
    make_directories(folder_);
    remove_others(folder_, kTemporary, {});  // of runs that were killed
    AtomicPath whole(final_path);
    const std::filesystem::path& path = whole.temporary();
    make_directories(path);
    save_optimizer(path / kOptimizer, optimizer);
    trainable.save(path / kModel, save);
    write_json(path / kState, json);
    write_file_atomic(path / kDone, number + "\n");
    std::filesystem::remove_all(final_path);  // without DONE, so no checkpoint
    whole.commit();
  }
  replace_link(folder_ / "last", final_path);
  remove_others(folder_, kStepPrefix, final_path);
}

std::optional<std::filesystem::path> CheckpointFolder::newest() const {
  std::optional<std::filesystem::path> found;
  if (!std::filesystem::is_directory(folder_)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix) || !std::filesystem::exists(entry.path() / kDone)) continue;
    if (!found || found->filename() < entry.path().filename()) found = entry.path();
  }
  return found;
}

TrainingState CheckpointFolder::restore(const std::filesystem::path& checkpoint, TrainableModel& trainable,
                                        Optimizer& optimizer) const {
  const std::filesystem::path file = checkpoint / kState;
  const nlohmann::json json = load_json(file);
  TrainingState state;
  try {
    require_same("the checkpoint has another format version", json.at("format_version").dump(),
                 std::to_string(kFormatVersion), checkpoint);
    require_same("the checkpoint belongs to a run with other options or data", json.at("identity"), identity_,
                 checkpoint);
    warn_of_threads(json.at("threads"));
    if (json.value("bf16", bf16_) != bf16_) {
      log_warning(
          "the run multiplied in {} until now, and in {} from here on (precision = \"auto\" is the processor's)",
          bf16_ ? "fp32" : "bf16", bf16_ ? "bf16" : "fp32");
    }
    json.at("state").get_to(state);
  } catch (const nlohmann::json::exception& error) {
    throw UserError({.where = file.string(), .what = "the checkpoint is damaged", .found = error.what()});
  }
  trainable.load(checkpoint / kModel);
  load_optimizer(checkpoint / kOptimizer, optimizer);
  optimizer.set_steps(state.step);
  return state;
}

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
  if (summary["model"].is_null()) log_warning("{} has lost the validation of step {}", file.string(), kept);
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
    if (!value || !std::isfinite(*value)) return;  // alpha, where nothing was drafted
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

void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds) {
  state.seconds += seconds;
  state.window_seconds += seconds;
  state.window_loss += result.loss_sum;
  state.window_labels += result.labels;
  state.window_divisor += result.divisor;
  ++state.window_updates;
  if (is_clipped(result, clip_norm)) ++state.window_clipped;
  state.window_largest_norm = std::max(state.window_largest_norm, result.gradient_norm);
}

nlohmann::ordered_json window_line(const TrainingState& state, double lr, double gradient_norm) {
  const auto labels = static_cast<double>(std::max<int64_t>(1, state.window_labels));
  const auto divisor = static_cast<double>(std::max<int64_t>(1, state.window_divisor));
  const auto updates = static_cast<double>(std::max<int64_t>(1, state.window_updates));
  return {{"step", state.step},
          {"epochs", state.epochs},
          {"labels", state.labels},
          {"loss", state.window_loss / divisor},
          {"lr", lr},
          {"gradient_norm", gradient_norm},
          {"gradient_norm_max", state.window_largest_norm},
          {"clipped", static_cast<double>(state.window_clipped) / updates},
          {"tokens_per_second", labels / std::max(state.window_seconds, 1e-9)},
          {"seconds", state.seconds}};
}

void clear_window(TrainingState& state) {
  state.window_loss = state.window_seconds = state.window_largest_norm = 0;
  state.window_labels = state.window_divisor = state.window_updates = state.window_clipped = 0;
}

}  // namespace draftsmith::train
