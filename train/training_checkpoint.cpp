#include "train/training_checkpoint.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
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
constexpr const char* kTemporary = "unfinished-";
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kDone = "DONE";
constexpr int64_t kFormatVersion = 1;

// Removes everything in the folder but `keep` and links: older checkpoints, and unfinished ones of killed runs.
void remove_others(const std::filesystem::path& folder, const std::filesystem::path& keep) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with(kStepPrefix) || name.starts_with(kTemporary);
    if (ours && entry.path() != keep && !entry.is_symlink()) std::filesystem::remove_all(entry.path());
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

void require_version(const nlohmann::json& json, const std::filesystem::path& file) {
  const int64_t version = json.at("format_version");
  if (version == kFormatVersion) return;
  throw UserError(Problem{.where = file.string(),
                          .what = "the checkpoint has another format version",
                          .expected = std::to_string(kFormatVersion),
                          .found = std::to_string(version),
                          .hint = "train in another directory, or remove this one to start anew"});
}

void require_identity(const std::string& found, const std::string& expected, const std::filesystem::path& checkpoint) {
  if (found == expected) return;
  throw UserError(Problem{.where = checkpoint.string(),
                          .what = "the checkpoint belongs to a run with other options or data",
                          .expected = expected,
                          .found = found,
                          .hint = "train in another directory, or remove this one to start anew"});
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
  const std::filesystem::path path = folder_ / (kTemporary + number);
  const nlohmann::ordered_json json{{"format_version", kFormatVersion},
                                    {"identity", identity_},
                                    {"threads", at::get_num_threads()},
                                    {"state", nlohmann::json(state)}};
  // If it is written, the run went on from this very checkpoint and only validated since: weights and optimizer are
  // those in it.
  if (std::filesystem::exists(final_path / kDone)) {
    write_json(final_path / kState, json);
  } else {
    make_directories(folder_);
    std::filesystem::remove_all(path);
    make_directories(path);
    save_optimizer(path / kOptimizer, optimizer);
    trainable.save(path / kModel, save);
    write_json(path / kState, json);
    write_file_atomic(path / kDone, number + "\n");
    std::filesystem::remove_all(final_path);  // without DONE, so no checkpoint
    rename_directory(path, final_path);
  }
  replace_link(folder_ / "last", final_path);
  remove_others(folder_, final_path);
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
    require_version(json, file);
    require_identity(json.at("identity"), identity_, checkpoint);
    warn_of_threads(json.at("threads"));
    json.at("state").get_to(state);
  } catch (const nlohmann::json::exception& error) {
    throw UserError({.where = file.string(), .what = "the checkpoint is damaged", .found = error.what()});
  }
  trainable.load(checkpoint / kModel);
  load_optimizer(checkpoint / kOptimizer, optimizer);
  optimizer.set_steps(state.step);
  return state;
}

}  // namespace draftsmith::train
