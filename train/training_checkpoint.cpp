#include "train/training_checkpoint.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "distributed/process_group.h"
#include "model/files/safetensors.h"
#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

Progressed TrainingState::progressed() const {
  return {.steps = static_cast<double>(step), .epochs = epochs, .labels = static_cast<double>(labels)};
}

nlohmann::ordered_json to_json(const TrainingState& state) {
  nlohmann::ordered_json json{{"step", state.step},
                              {"micro_step", state.micro_step},
                              {"epoch", state.position.epoch},
                              {"batch", state.position.batch},
                              {"epochs", state.epochs},
                              {"labels", state.labels},
                              {"examples", state.examples},
                              {"seconds", state.seconds},
                              {"window_loss", state.window_loss},
                              {"window_labels", state.window_labels},
                              {"window_divisor", state.window_divisor},
                              {"window_seconds", state.window_seconds},
                              {"window_updates", state.window_updates},
                              {"window_clipped", state.window_clipped},
                              {"window_largest_norm", state.window_largest_norm},
                              {"skipped", state.skipped},
                              {"skipped_in_a_row", state.skipped_in_a_row},
                              {"validations", state.validations},
                              {"best_step", state.best_step},
                              {"since_best", state.since_best},
                              {"finished", state.finished}};
  if (state.best_value) json["best_value"] = *state.best_value;
  if (state.validation_due) json["validation_due"] = true;
  return json;
}

TrainingState state_from_json(const nlohmann::json& json, const std::string& where) {
  Problems problems;
  JsonReader reader(json, where, problems);
  const IntRange count{.min = 0};
  TrainingState state;
  state.step = reader.get_int("step", count);
  state.micro_step = reader.get_int("micro_step", count);
  state.position.epoch = reader.get_int("epoch", count);
  state.position.batch = reader.get_int("batch", count);
  state.epochs = reader.get_double("epochs");
  state.labels = reader.get_int("labels", count);
  state.examples = reader.get_int("examples", count);
  state.seconds = reader.get_double("seconds");
  state.window_loss = reader.get_double("window_loss");
  state.window_labels = reader.get_int("window_labels", count);
  state.window_seconds = reader.get_double("window_seconds");
  state.window_divisor = reader.get_int("window_divisor", count);
  state.window_updates = reader.get_int("window_updates", count);
  state.window_clipped = reader.get_int("window_clipped", count);
  state.window_largest_norm = reader.get_double("window_largest_norm");
  state.skipped = reader.get_int("skipped", count);
  state.skipped_in_a_row = reader.get_int("skipped_in_a_row", count);
  state.validations = reader.get_int("validations", count);
  state.best_step = reader.get_int("best_step", count);
  state.since_best = reader.get_int("since_best", count);
  state.finished = reader.get_bool("finished");
  if (reader.has("best_value")) state.best_value = reader.get_double("best_value");
  if (reader.has("validation_due")) state.validation_due = reader.get_bool("validation_due");
  problems.throw_if_any();
  return state;
}

// ---- The optimizer's file
// optimizer.safetensors of a training checkpoint: the state tensors of an optimizer, which may lie on several
// processes. Tensors travel one at a time; the leader alone reads and writes.

// Writes the whole state to the leader's `file`; the others' is ignored. All processes call it if the optimizer is
// sharded, else the leader alone. Errors: RunError.
void write_optimizer(const std::filesystem::path& file, const Optimizer& optimizer, ProcessGroup& world);

// Reads the state from the leader's `file`; the others' is ignored. All processes call it. Errors: UserError for
// tensors that are missing or misshapen.
void read_optimizer(const std::filesystem::path& file, Optimizer& optimizer, ProcessGroup& world);

namespace {

// The tensors of all processes, and who has each.
struct WholeState {
  std::vector<model::TensorPlace> places;  // in the order of a file
  std::map<std::string, int64_t> owners;   // by name
};

// Returns names and shapes of this process's tensors as a text. Their types are those of the parameters.
std::string places_text(const std::map<std::string, at::Tensor>& own) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, tensor] : own) json[name] = tensor.sizes().vec();
  return json.dump();
}

// Finds what all processes have. All call it if the optimizer is sharded.
WholeState whole_state(const Optimizer& optimizer, ProcessGroup& world) {
  const std::string own = places_text(optimizer.state());
  const auto texts = optimizer.is_sharded() ? world.gather("an exchange of what each process has of the optimizer", own)
                                            : std::vector<std::string>{own};
  const at::ScalarType type = optimizer.parameters().front().value.scalar_type();
  WholeState whole;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto shapes = nlohmann::json::parse(texts[rank]);
    for (const auto& [name, shape] : shapes.items()) {
      whole.places.push_back({.name = name, .shape = shape.get<std::vector<int64_t>>(), .dtype = type});
      whole.owners[name] = static_cast<int64_t>(rank);
    }
  }
  whole.places = model::in_file_order(std::move(whole.places));
  return whole;
}

// Returns a new tensor where the optimizer's parameters are.
at::Tensor space_for(const model::TensorPlace& place, const Optimizer& optimizer) {
  return at::empty(place.shape, optimizer.parameters().front().value.options().requires_grad(false));
}

void require_fit(const model::SafetensorsFile& stored, const WholeState& whole) {
  Problems problems;
  for (const model::TensorPlace& place : whole.places) {
    const auto entry = stored.tensors().find(place.name);
    if (entry != stored.tensors().end() && entry->second.shape == place.shape) continue;
    problems.add({.where = stored.file().string(),
                  .what = "the optimizer's state does not fit this run",
                  .expected = place.name + " " + model::shape_text(place.shape),
                  .found = entry == stored.tensors().end() ? "none" : model::shape_text(entry->second.shape)});
  }
  problems.throw_if_any();
}

}  // namespace

void write_optimizer(const std::filesystem::path& file, const Optimizer& optimizer, ProcessGroup& world) {
  const at::NoGradGuard no_grad;
  const WholeState whole = whole_state(optimizer, world);
  const std::map<std::string, at::Tensor> own = optimizer.state();
  const auto fetch = [&](const model::TensorPlace& place) {
    const int64_t owner = whole.owners.at(place.name);
    const at::Tensor tensor = owner == world.rank() ? own.at(place.name) : space_for(place, optimizer);
    if (optimizer.is_sharded()) world.broadcast({tensor}, owner);
    return tensor;
  };
  if (world.leads()) {
    model::write_safetensors(file, whole.places, fetch);
  } else {
    for (const model::TensorPlace& place : whole.places) fetch(place);
  }
}

void read_optimizer(const std::filesystem::path& file, Optimizer& optimizer, ProcessGroup& world) {
  const at::NoGradGuard no_grad;
  const WholeState whole = whole_state(optimizer, world);
  std::map<std::string, at::Tensor> own = optimizer.state();
  std::optional<model::SafetensorsFile> stored;
  if (world.leads()) {
    stored.emplace(file);
    require_fit(*stored, whole);
  }
  for (const model::TensorPlace& place : whole.places) {
    const auto mine = own.find(place.name);
    at::Tensor tensor = mine == own.end() ? space_for(place, optimizer) : mine->second;
    if (stored) {
      tensor.copy_(stored->stored(place.name));
      stored->forget_pages();
    }
    world.broadcast({tensor});
  }
}

namespace {

constexpr const char* kBest = "best";

}  // namespace

std::filesystem::path best_directory(const std::filesystem::path& run, int64_t step) {
  return run / fmt::format("{}-{:09}", kBest, step);
}

bool count_validation(TrainingState& state, double value, const std::string& measure) {
  const bool lower_is_better = measure == "loss";
  const bool better = !state.best_value || (lower_is_better ? value < *state.best_value : value > *state.best_value);
  ++state.validations;
  if (better) {
    state.best_value = value;
    state.best_step = state.step;
    state.since_best = 0;
  } else {
    ++state.since_best;
  }
  return better;
}

void keep_best_only(const std::filesystem::path& run, int64_t step) {
  const std::filesystem::path kept = best_directory(run, step);
  replace_link(run / kBest, kept);
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    const bool old = name.starts_with(std::string(kBest) + "-") && entry.path() != kept;
    if (old && !entry.is_symlink()) std::filesystem::remove_all(entry.path());
  }
}

void require_finite_measure(double value, const std::string& measure, int64_t step, const std::string& where) {
  if (std::isfinite(value)) return;
  throw RunError({.where = where,
                  .what = fmt::format("the validation's {} is not finite after training step {}", measure, step),
                  .expected = "a finite number",
                  .found = fmt::format("{}", value),
                  .hint = "lower the learning rate, warm up longer or clip. The last checkpoint is unharmed"});
}

namespace {

namespace fs = std::filesystem;

fs::path checkpoint_of(const fs::path& parent) {
  if (const auto found = CheckpointFolder(parent / "checkpoints", {}).newest()) return *found;
  throw UserError(
      Problem{.where = parent.string(),
              .what = "no training run to continue: it holds no checkpoint",
              .expected = "a directory with checkpoints/step-.../DONE, such as a train stage's",
              .found = fs::is_directory(parent / "checkpoints") ? "no finished checkpoint" : "no folder checkpoints",
              .hint = "a run that fails before its first checkpoint (checkpoint_every) leaves none"});
}

// Copies a file or folder of the parent, if it is there, in place of the new run's.
void copy_from(const fs::path& parent, const fs::path& directory, const fs::path& name) {
  fs::remove_all(directory / name);
  if (fs::exists(parent / name)) fs::copy(parent / name, directory / name, fs::copy_options::recursive);
}

// Keeps the parent's best model, or forgets it if the new run measures something else.
void take_best(const Continuation& continuation, bool alike, TrainingState& state) {
  if (!state.best_value) return;
  const fs::path best = best_directory(continuation.parent, state.best_step);
  if (alike && fs::exists(best)) {
    copy_from(continuation.parent, continuation.directory, best.filename());
    return;
  }
  log_info("the best model of {} is not compared with later ones{}", continuation.parent.string(),
           alike ? ": it is missing" : ": validation differs");
  state.best_value.reset();
  state.best_step = state.since_best = 0;
}

}  // namespace

StoredCheckpoint continue_run(const Continuation& continuation, const RunRecord& own, TrainableModel& trainable) {
  StoredCheckpoint stored = read_checkpoint(checkpoint_of(continuation.parent));
  Problems problems;
  check_continues(own, stored.record, problems);
  problems.throw_if_any();
  load_weights(stored, trainable);
  log_info("continuing the run of {} after step {}", continuation.parent.string(), stored.state.step);
  TrainingState& state = stored.state;
  state.finished = false;
  make_directories(continuation.directory);
  for (const char* name : {"metrics.jsonl", "tensorboard"}) {
    copy_from(continuation.parent, continuation.directory, name);
  }
  take_best(continuation, validate_alike(own, stored.record), state);
  // The parent's patience ran out; the new run's begins anew.
  const int64_t patience = continuation.options.validation.patience;
  if (patience > 0 && state.since_best >= patience) state.since_best = 0;
  return stored;
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
