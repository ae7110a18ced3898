#include "train/training_checkpoint.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "model/files/safetensors.h"

namespace draftsmith::train {

namespace {

constexpr const char* kStepPrefix = "step-";
constexpr const char* kTemporary = "unfinished-";
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kDone = "DONE";
constexpr int64_t kFormatVersion = 1;

void write_optimizer(const std::filesystem::path& file, const Optimizer& optimizer) {
  std::vector<model::TensorToStore> tensors;
  for (const auto& [name, tensor] : optimizer.state()) {
    tensors.push_back({.name = name, .tensor = tensor, .dtype = tensor.scalar_type()});
  }
  model::write_safetensors(file, std::move(tensors));
}

std::map<std::string, at::Tensor> read_optimizer(const std::filesystem::path& file, const Optimizer& optimizer) {
  const model::SafetensorsFile stored(file);
  std::map<std::string, at::Tensor> tensors;
  Problems problems;
  for (const auto& [name, own] : optimizer.state()) {
    const auto entry = stored.tensors().find(name);
    if (entry == stored.tensors().end() || at::IntArrayRef(entry->second.shape) != own.sizes()) {
      problems.add({.where = file.string(),
                    .what = "the optimizer's state does not fit this run",
                    .expected = name + " " + model::shape_text(own.sizes()),
                    .found = entry == stored.tensors().end() ? "none" : model::shape_text(entry->second.shape)});
      continue;
    }
    tensors[name] = stored.read(name, own.scalar_type());
  }
  problems.throw_if_any();
  return tensors;
}

// Removes everything in the folder but `keep` and links: older checkpoints, and unfinished ones of killed runs.
void remove_others(const std::filesystem::path& folder, const std::filesystem::path& keep) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with(kStepPrefix) || name.starts_with(kTemporary);
    if (ours && entry.path() != keep && !entry.is_symlink()) std::filesystem::remove_all(entry.path());
  }
}

void warn_of_threads(const RunRecord& stored, const RunRecord& own) {
  if (stored.threads == 0 || stored.threads == own.threads) return;
  log_warning(
      "the run went on with {} threads until now, and with {} from here on: sums are rounded otherwise, so the "
      "result is not bit for bit that of an uninterrupted run (--threads {})",
      stored.threads, own.threads, stored.threads);
}

}  // namespace

StoredCheckpoint read_checkpoint(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / kState;
  const nlohmann::json json = load_json(file);
  Problems problems;
  JsonReader reader(json, file.string(), problems);
  reader.get_int("format_version", {.min = kFormatVersion, .max = kFormatVersion});
  StoredCheckpoint stored{.directory = checkpoint,
                          .record = run_record_from_json(json, file.string(), problems),
                          .state = {},
                          .optimizer_steps = reader.get_int("optimizer_steps", {.min = 0})};
  if (!json.contains("state")) problems.add({.where = file.string(), .what = "no counters", .expected = "'state'"});
  problems.throw_if_any();
  stored.state = state_from_json(json.at("state"), file.string());
  return stored;
}

void load_checkpoint(const StoredCheckpoint& stored, TrainableModel& trainable, Optimizer& optimizer) {
  trainable.load(stored.directory / kModel);
  optimizer.restore(read_optimizer(stored.directory / kOptimizer, optimizer), stored.optimizer_steps);
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, RunRecord record)
    : folder_(std::move(folder)), record_(std::move(record)) {}

void CheckpointFolder::write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
                             const model::SaveOptions& save) {
  const std::string number = fmt::format("{:09}", state.step);
  const std::filesystem::path final_path = folder_ / (kStepPrefix + number);
  const std::filesystem::path path = folder_ / (kTemporary + number);
  nlohmann::ordered_json json = record_;
  json["format_version"] = kFormatVersion;
  json["optimizer_steps"] = optimizer.steps();
  json["state"] = to_json(state);
  if (std::filesystem::exists(final_path / kDone)) {
    // The run went on from this very checkpoint and only validated since: weights and optimizer are those in it.
    write_json(final_path / kState, json);
  } else {
    make_directories(folder_);
    std::filesystem::remove_all(path);
    make_directories(path);
    trainable.save(path / kModel, save);
    write_optimizer(path / kOptimizer, optimizer);
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
  const StoredCheckpoint stored = read_checkpoint(checkpoint);
  if (stored.record.identity != record_.identity) {
    throw UserError(Problem{.where = checkpoint.string(),
                            .what = "the checkpoint belongs to a run with other options or data",
                            .expected = record_.identity,
                            .found = stored.record.identity,
                            .hint = "train in another directory, or remove this one to start anew. `continue_from` "
                                    "goes on from it with another length or rate"});
  }
  warn_of_threads(stored.record, record_);
  load_checkpoint(stored, trainable, optimizer);
  return stored.state;
}

}  // namespace draftsmith::train
