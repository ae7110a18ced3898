#include "train/training_checkpoint.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "train/optimizer_file.h"

namespace draftsmith::train {

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

void warn_of_threads(const RunRecord& stored, const RunRecord& own) {
  if (stored.threads == own.threads) return;
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
  const int64_t version = reader.get_int("format_version", {.min = 0}, 0);
  if (version != kFormatVersion) {
    throw UserError(Problem{.where = file.string(),
                            .what = "the checkpoint has another format version",
                            .expected = std::to_string(kFormatVersion),
                            .found = std::to_string(version),
                            .hint = "train in another directory, or remove this one to start anew"});
  }
  StoredCheckpoint stored{.directory = checkpoint,
                          .record = run_record_from_json(json, file.string(), problems),
                          .state = {},
                          .optimizer_steps = reader.get_int("optimizer_steps", {.min = 0})};
  if (!json.contains("state")) problems.add({.where = file.string(), .what = "no counters", .expected = "'state'"});
  problems.throw_if_any();
  stored.state = state_from_json(json.at("state"), file.string());
  return stored;
}

void load_weights(const StoredCheckpoint& stored, TrainableModel& trainable) {
  trainable.load(stored.directory / kModel);
}

void load_optimizer(const StoredCheckpoint& stored, Optimizer& optimizer, ProcessGroup& world) {
  read_optimizer(stored.directory / kOptimizer, optimizer, world);
  optimizer.set_steps(stored.optimizer_steps);
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, RunRecord record, ProcessGroup& world)
    : folder_(std::move(folder)), record_(std::move(record)), world_(world) {}

void CheckpointFolder::write(const TrainableModel& trainable, const Optimizer& optimizer, const TrainingState& state,
                             const model::SaveOptions& save) {
  if (world_.leads()) {
    write_files(trainable, optimizer, state, save);
  } else if (optimizer.is_sharded() && leader_says(false, trainable.info().device)) {
    write_optimizer({}, optimizer, world_);
  }
}

bool CheckpointFolder::leader_says(bool value, at::Device device) const {
  at::Tensor said = at::full({1}, value ? 1 : 0, at::TensorOptions(device).dtype(at::kLong));
  world_.broadcast({said});
  return said.item<int64_t>() != 0;
}

void CheckpointFolder::write_files(const TrainableModel& trainable, const Optimizer& optimizer,
                                   const TrainingState& state, const model::SaveOptions& save) {
  const std::string number = fmt::format("{:09}", state.step);
  const std::filesystem::path final_path = folder_ / (kStepPrefix + number);
  const std::filesystem::path path = folder_ / (kTemporary + number);
  nlohmann::ordered_json json = record_;
  json["format_version"] = kFormatVersion;
  json["optimizer_steps"] = optimizer.steps();
  json["state"] = to_json(state);
  // If it is written, the run went on from this very checkpoint and only validated since: weights and optimizer are
  // those in it.
  const bool written = std::filesystem::exists(final_path / kDone);
  if (optimizer.is_sharded()) leader_says(!written, trainable.info().device);
  if (written) {
    write_json(final_path / kState, json);
  } else {
    make_directories(folder_);
    std::filesystem::remove_all(path);
    make_directories(path);
    write_optimizer(path / kOptimizer, optimizer, world_);  // first, since the others wait to give their parts
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

StoredCheckpoint CheckpointFolder::restore(const std::filesystem::path& checkpoint, TrainableModel& trainable) const {
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
  load_weights(stored, trainable);
  return stored;
}

}  // namespace draftsmith::train
