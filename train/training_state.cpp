#include "train/training_state.h"

#include "base/json.h"

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

}  // namespace draftsmith::train
