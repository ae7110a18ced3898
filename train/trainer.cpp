#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "base/timing.h"
#include "base/util.h"
#include "data/corpus/batches.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/schedule.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

// Checks that examples, or an encoder-decoder's sources and targets, fit the model's positions: positions beyond the
// last would be treated as the last one. Every model that receives the batches is checked.
void check_length(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems) {
  if (info.max_positions == 0) return;
  int64_t longest = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const int64_t apart = std::max(std::ssize(corpus.source(i)), std::ssize(corpus.target(i)));
    longest = std::max(longest, info.encoder_decoder ? apart : data::joined_length(corpus, i));
  }
  if (longest <= info.max_positions) return;
  problems.add({corpus.file().string(), "an example is longer than the model's positions: " + info.name,
                fmt::format("at most {} tokens", info.max_positions), std::to_string(longest),
                "prepare it with max_source and max_target, or raise max_positions"});
}

// Checks the lengths for the teacher that runs beside the trained model, and for the one of validation.
void check_teachers_lengths(const TrainerInputs& inputs, Problems& problems) {
  const model::ModelInfo* live = inputs.distilled ? inputs.distilled->live() : nullptr;
  if (live) check_length(inputs.corpus, *live, problems);
  const ValidationInputs& validation = inputs.validation;
  if (validation.corpus && validation.teacher) check_length(*validation.corpus, validation.teacher->info(), problems);
}

}  // namespace

void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems) {
  data::check_form(corpus, info.encoder_decoder, problems);
  check_length(corpus, info, problems);
  if (corpus.size() == 0) problems.add({corpus.file().string(), "the corpus has no examples", "", "", ""});
  if (corpus.info().vocabulary <= info.vocabulary) return;
  problems.add({corpus.file().string(), "the corpus has more token ids than the model",
                fmt::format("at most {}", info.vocabulary), std::to_string(corpus.info().vocabulary),
                "tokenize the corpus with the model's own tokenizer"});
}

namespace {

// Refuses inputs that do not fit each other, all at once.
void check_inputs(const TrainerInputs& inputs) {
  const model::ModelInfo& info = inputs.trainable.info();
  if (info.dtype != at::kFloat && info.dtype != at::kDouble) {
    throw std::logic_error("training updates fp32 weights; convert the model first");
  }
  Problems problems;
  check_corpus(inputs.corpus, info, problems);
  const ValidationInputs& validation = inputs.validation;
  if (validation.corpus) check_corpus(*validation.corpus, info, problems);
  if (validation.corpus && validation.teacher) {
    LiveTeacher(*validation.teacher).check(*validation.corpus, info, problems);
  }
  check_teachers_lengths(inputs, problems);
  problems.throw_if_any();
}

PeriodScale scale_of(const data::Corpus& corpus, int64_t batches, int64_t accumulate) {
  return {.steps_per_epoch = std::ceil(static_cast<double>(batches) / static_cast<double>(accumulate)),
          .labels_per_epoch = static_cast<double>(std::max<int64_t>(1, corpus.info().target_tokens))};
}

// ---- The best model of a run so far, by its validations
//   RUN/best-000000800/, best     the model directory after that step, and a link to it

constexpr const char* kBest = "best";

// Counts a validation in the state. Returns whether its value is the best so far of a measure (ValidationOptions).
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

void require_finite_measure(double value, const std::string& measure, int64_t step, const std::string& where) {
  if (std::isfinite(value)) return;
  throw RunError({where, fmt::format("the validation's {} is not finite after training step {}", measure, step),
                  "a finite number", fmt::format("{}", value),
                  "lower the learning rate, warm up longer or clip. The last checkpoint is unharmed"});
}

struct TrainingRun {
  TrainingRun(TrainerInputs given, TrainOptions chosen, std::filesystem::path where)
      : inputs(std::move(given)),
        options(std::move(chosen)),
        directory(std::move(where)),
        length(parse_period(options.length, "train.length")),
        world(*inputs.world),
        batches(inputs.corpus, options.batches,
                inputs.trainable.info().encoder_decoder ? data::RowForm::kSeparate : data::RowForm::kJoined),
        scale(scale_of(inputs.corpus, batches.batches(0), options.accumulate)),
        schedule(options.schedule, length, scale),
        objective(make_objective(options.objective,
                                 {&inputs.trainable, &inputs.corpus, inputs.distilled, options.batches.token_budget})),
        optimizer(make_optimizer(inputs.trainable.parameters(), options.optimizer)),
        checkpoints(directory / "checkpoints", sha256(inputs.identity + options_hash(options)), bf16()) {
    check_inputs(inputs);
    check_validation(inputs.trainable, inputs.validation, options.validation);
    check_groups();
    warn_of_idle_processes();
  }

  bool bf16() const { return trains_in_bf16(options.precision, inputs.trainable.info().device); }
  bool validates() const { return inputs.validation.corpus != nullptr; }
  bool over() const { return state.finished || done(length, state.progressed(), length) >= 1; }
  std::filesystem::path best_directory(int64_t step) const { return directory / fmt::format("{}-{:09}", kBest, step); }

  model::SaveOptions save_options() const {
    model::SaveOptions save;
    if (inputs.validation.tokenizer) save.tokenizer = inputs.validation.tokenizer->file();
    save.generation = inputs.generation;
    return save;
  }

  // Returns whether a multiple of `text`, a period, lies between the counters before the step and now.
  bool due(const std::string& text, const Progressed& before) const {
    if (text.empty()) return false;
    const Period period = parse_period(text, "train");
    return times_done(period, state.progressed(), length) > times_done(period, before, length);
  }

  void check_groups() const {
    const auto& parameters = optimizer->parameters();
    if (std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.lr_factor > 0; })) return;
    throw UserError(
        {"train.optimizer.groups", "every parameter is frozen", "a parameter whose lr_factor is above 0", "", ""});
  }

  void warn_of_idle_processes() const {
    if (world.size() <= options.accumulate || !world.leads()) return;
    log_warning("{} processes share {} micro-batches a step, so {} do nothing: raise `accumulate` to a multiple of {}",
                world.size(), options.accumulate, world.size() - options.accumulate, world.size());
  }

  // Turns gradients of frozen parameters off: they would cost time and count in the norm that clipping reads.
  void require_gradients() const {
    train::require_gradients(inputs.trainable, true);
    for (const OptimizedParameter& parameter : optimizer->parameters()) {
      at::Tensor value = parameter.value;
      if (parameter.lr_factor == 0) value.requires_grad_(false);
    }
  }

  void resume() {
    if (world.leads()) restore();
    if (!world.is_alone()) share_start();
    if (!world.leads()) return;
    log.emplace(directory,
                TrainingLogOptions{.progress = inputs.progress,
                                   .last_step = state.step,
                                   .validated = !state.validation_due,
                                   .total_steps = static_cast<int64_t>(std::ceil(in_steps(length, length, scale)))});
  }

  void restore() {
    const auto checkpoint = checkpoints.newest();
    if (!checkpoint) return;
    state = checkpoints.restore(*checkpoint, inputs.trainable, *optimizer);
    best_of_checkpoint = state.best_step;
    if (!state.finished) log_info("going on from {}", checkpoint->string());
  }

  // Gives all processes what the leader restored: the others may not see its checkpoints.
  void share_start() {
    const std::string told = world.from_leader("restoring the run", nlohmann::json(state).dump());
    state = nlohmann::json::parse(told).get<TrainingState>();
    share_weights();
    world.broadcast(from_each(optimizer->state(), [](const auto& entry) { return entry.second; }));
    optimizer->set_steps(state.step);
  }

  void share_weights() {
    world.broadcast(from_each(inputs.trainable.parameters(), [](const auto& entry) { return entry.second; }));
  }

  StepSettings step_settings() {
    return {.dropout = options.dropout.value_or(inputs.trainable.dropout()),
            .seed = options.seed,
            .first_micro_step = static_cast<uint64_t>(state.micro_step),
            .pack_tokens = options.batches.pack_tokens,
            .autocast = bf16(),
            .step = state.step + 1,
            .world = &world};
  }

  // Counters after a step.
  void count(const MicroBatches& data, const StepResult& result) {
    ++state.step;
    state.micro_step += static_cast<int64_t>(data.size());
    state.labels += result.labels;
    for (const auto& examples : data) state.examples += static_cast<int64_t>(examples.size());
    state.epochs = static_cast<double>(state.position.epoch);
    if (state.position.batch > 0) {
      state.epochs +=
          static_cast<double>(state.position.batch) / static_cast<double>(batches.batches(state.position.epoch));
    }
  }

  std::string stopped() const {
    return fmt::format("training stopped after step {}; the same command goes on from there ({})", state.step,
                       (directory / "checkpoints").string());
  }

  // Leaves a step that has taken a second if a stop was requested. A shorter one is waited for, so that no work is
  // lost; so is that of several processes, which end together.
  void tick() {
    if (log) log->tick();
    if (in_gradients && world.is_alone() && in_gradients->seconds() > 1) throw_if_stop_requested(stopped());
  }

  // A step that is left is as if it had not begun.
  StepResult gradients_of(const MicroBatches& data, const data::BatchPosition& before) {
    in_gradients.emplace();
    try {
      const StepResult result =
          accumulate_gradients(inputs.trainable, *objective, inputs.corpus, data, step_settings());
      in_gradients.reset();
      return result;
    } catch (const Interrupted&) {
      in_gradients.reset();
      state.position = before;
      optimizer->zero_grad();
      save_checkpoint();
      throw;
    }
  }

  void step() {
    const Stopwatch watch;
    const Progressed before = state.progressed();
    const data::BatchPosition position = state.position;
    const MicroBatches data = next_step(batches, state.position, options.accumulate);
    const double waited_before = world.waited();
    const StepResult result = gradients_of(data, position);
    stop_agreed = result.stop;
    count(data, result);
    const double lr = options.optimizer.lr * schedule.factor(before, state.progressed());
    optimizer->step(lr, gradient_scale(result, options.clip_norm));
    optimizer->zero_grad();
    waited += world.waited() - waited_before;
    log_step(result, lr, watch.seconds());
  }

  void log_step(const StepResult& result, double lr, double seconds) {
    add_to_window(state, result, options.clip_norm, seconds);
    nlohmann::ordered_json line = window_line(state, lr, result.gradient_norm);
    if (!world.is_alone()) line["waited"] = waited / std::max(state.window_seconds, 1e-9);
    if (log) log->advance(line);
    if (state.step % options.log_every != 0) return;
    if (log) log->add(line);
    waited = 0;
    clear_window(state);
  }

  // The leader validates, and the others wait for it. Stays due if the run is stopped during it: a resumed run begins
  // with it.
  void run_validation() {
    const Stopwatch watch;
    ValidationResult result;
    const std::string& measure = options.validation.measure;
    const auto measured = [&]() -> nlohmann::json {
      if (!world.leads()) return nullptr;
      const LongWork work("the validation was not finished", [&] { tick(); });
      result = validate(inputs.trainable, inputs.validation, options.validation);
      return {exact_text(result.loss), exact_text(value_of(result, measure))};
    };
    std::vector<nlohmann::json> parts;
    try {
      parts = world.gather_parts("the validation", measured);
    } catch (const Interrupted&) {
      stop_agreed = true;
      return;
    }
    state.validation_due = false;
    const double loss = exact_number(parts.front().at(0)), value = exact_number(parts.front().at(1));
    const std::string corpus = inputs.validation.corpus->file().string();
    require_finite_measure(loss, "loss", state.step, corpus);
    require_finite_measure(value, measure, state.step, corpus);
    const bool better = count_validation(state, value, measure);
    if (better && world.leads()) {
      // A run killed after this and before its next checkpoint comes here again.
      std::filesystem::remove_all(best_directory(state.step));
      inputs.trainable.save(best_directory(state.step), save_options());
      remove_old_bests();
    }
    if (log) log->add(state.step, result, better, watch.seconds());
    if (options.validation.patience > 0 && state.since_best >= options.validation.patience) {
      if (log) log_info("no better {} for {} validations: stopping", measure, state.since_best);
      state.finished = true;
    }
  }

  void save_checkpoint() {
    if (!world.leads()) return;
    checkpoints.write(inputs.trainable, *optimizer, state, save_options());
    since_checkpoint.emplace();
    if (!state.best_value) return;
    best_of_checkpoint = state.best_step;
    replace_link(directory / kBest, best_directory(state.best_step));
    remove_old_bests();
  }

  // Removes best models but the newest and that of the last checkpoint, which a resumed run needs.
  void remove_old_bests() const {
    const std::set kept{best_directory(state.best_step), best_directory(best_of_checkpoint)};
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const bool is_best = entry.path().filename().string().starts_with(std::string(kBest) + "-");
      if (is_best && !kept.contains(entry.path()) && !entry.is_symlink()) std::filesystem::remove_all(entry.path());
    }
  }

  void after_step(const Progressed& before) {
    state.validation_due = validates() && (due(options.validation.every, before) || over());
    const auto minutes = parse_minutes(options.checkpoint_every);
    complete_step(minutes ? since_checkpoint->seconds() >= 60 * *minutes : due(options.checkpoint_every, before));
  }

  // Validation, checkpoint or end, if due after a step, or if due when the run was stopped.
  void complete_step(bool checkpoint_due) {
    if (state.validation_due) run_validation();
    if (over() && !state.validation_due) state.finished = true;
    const bool stop = !state.finished && (world.is_alone() ? stop_requested() != 0 : stop_agreed);
    if (state.finished || stop || checkpoint_due) save_checkpoint();
    if (stop) {
      if (!world.is_alone()) request_stop(SIGTERM);  // another process may be the one that was asked
      throw_if_stop_requested(stopped());
    }
  }

  // Writes the result.
  TrainResult finish() {
    train::require_gradients(inputs.trainable, false);
    const std::filesystem::path result = directory / "model";
    if (world.leads()) write_result(result);
    return {.model = result, .state = state};
  }

  void write_result(const std::filesystem::path& result) {
    log->finish();
    const bool best = options.keep == "best" && state.best_value;
    if (best) inputs.trainable.load(best_directory(state.best_step));
    if (!std::filesystem::exists(result)) inputs.trainable.save_result(result, save_options());
    if (validates()) write_validation_summary(directory, best ? state.best_step : state.step);
  }

  TrainerInputs inputs;
  TrainOptions options;
  std::filesystem::path directory;
  Period length;
  ProcessGroup& world;
  data::BatchOrder batches;
  PeriodScale scale;
  Schedule schedule;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Optimizer> optimizer;
  CheckpointFolder checkpoints;
  TrainingState state;
  int64_t best_of_checkpoint = 0;
  std::optional<TrainingLog> log;         // the leader's
  bool stop_agreed = false;               // of several processes, one was asked to stop
  std::optional<Stopwatch> in_gradients;  // the time of a step's gradients, while they are computed
  std::optional<Stopwatch> since_checkpoint{std::in_place};
  double waited = 0;  // seconds of the steps since the last line of the log
};

}  // namespace

TrainResult run_training(TrainerInputs inputs, TrainOptions options, std::filesystem::path directory) {
  TrainingRun run(std::move(inputs), std::move(options), std::move(directory));
  keep_freed_memory();
  const LongWork work({}, [&] { run.tick(); });
  run.resume();
  run.require_gradients();
  if (run.state.validation_due) run.complete_step(true);
  while (!run.over()) {
    const Progressed before = run.state.progressed();
    run.step();
    run.after_step(before);
  }
  return run.finish();
}

}  // namespace draftsmith::train
