#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <stdexcept>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/timing.h"
#include "data/corpus/batches.h"
#include "train/data_parallel.h"
#include "train/optimizers/optimizer.h"
#include "train/teacher/teacher_source.h"
#include "train/training_checkpoint.h"
#include "train/training_log.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

// Checks that the teacher can read the batches that are made for the model.
void check_teacher(const TrainerInputs& inputs, Problems& problems) {
  const model::ModelInfo& info = inputs.trainable.info();
  const model::ModelInfo& teacher = inputs.teacher->info();
  const std::string where = "teacher " + teacher.name;
  const int64_t vocabulary = inputs.validation->info().vocabulary;
  if (teacher.vocabulary < vocabulary) {
    problems.add(
        {.where = where,
         .what = "the validation corpus " + inputs.validation->file().string() + " has more token ids than the teacher",
         .expected = fmt::format("at least {}", vocabulary),
         .found = std::to_string(teacher.vocabulary),
         .hint = "overlap and drafting need a teacher with the model's own tokenizer"});
  }
  if (teacher.decoder_start != info.decoder_start) {
    problems.add({.where = where,
                  .what = "teacher and model " + info.name + " begin their outputs with different tokens",
                  .expected = fmt::format("decoder_start_token_id {}", info.decoder_start),
                  .found = std::to_string(teacher.decoder_start),
                  .hint = "overlap and drafting need a teacher of the model's own family and tokenizer"});
  }
}

void check_form(const data::Corpus& corpus, Problems& problems) {
  if (data::continues_prompts(corpus.info())) return;
  problems.add({.where = corpus.file().string(),
                .what = "its sources end in EOS, but a decoder-only model continues its prompts",
                .expected = "a corpus prepared with prompts = true, or plain text",
                .found = "sources for an encoder",
                .hint = "set prompts = true in the corpus stage, or --prompts in data prepare"});
}

// Checks that examples fit the model's positions: positions beyond the last would be treated as the last one. Every
// model that receives the batches is checked.
void check_length(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems) {
  if (info.max_positions == 0) return;
  int64_t longest = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) longest = std::max(longest, data::joined_length(corpus, i));
  if (longest <= info.max_positions) return;
  problems.add({.where = corpus.file().string(),
                .what = "an example is longer than the model's positions: " + info.name,
                .expected = fmt::format("at most {} tokens", info.max_positions),
                .found = std::to_string(longest),
                .hint = "prepare it with max_source and max_target, or raise max_positions"});
}

// Checks the lengths for the teacher that runs beside the trained model, and for the one of validation.
void check_teachers_lengths(const TrainerInputs& inputs, Problems& problems) {
  if (inputs.trainable.info().encoder_decoder) return;
  const model::ModelInfo* live = inputs.distilled ? inputs.distilled->live() : nullptr;
  if (live) check_length(inputs.corpus, *live, problems);
  if (inputs.validation && inputs.teacher) check_length(*inputs.validation, inputs.teacher->info(), problems);
}

}  // namespace

void check_corpus(const data::Corpus& corpus, const model::ModelInfo& info, Problems& problems) {
  if (!info.encoder_decoder) {
    check_form(corpus, problems);
    check_length(corpus, info, problems);
  }
  if (corpus.size() == 0) problems.add({.where = corpus.file().string(), .what = "the corpus has no examples"});
  if (corpus.info().vocabulary <= info.vocabulary) return;
  problems.add({.where = corpus.file().string(),
                .what = "the corpus has more token ids than the model",
                .expected = fmt::format("at most {}", info.vocabulary),
                .found = std::to_string(corpus.info().vocabulary),
                .hint = "tokenize the corpus with the model's own tokenizer"});
}

void check_inputs(const TrainerInputs& inputs) {
  const model::ModelInfo& info = inputs.trainable.info();
  if (info.dtype != at::kFloat && info.dtype != at::kDouble) {
    throw std::logic_error("training updates fp32 weights; convert the model first");
  }
  Problems problems;
  check_corpus(inputs.corpus, info, problems);
  if (inputs.validation) check_corpus(*inputs.validation, info, problems);
  if (inputs.validation && inputs.teacher) check_teacher(inputs, problems);
  check_teachers_lengths(inputs, problems);
  problems.throw_if_any();
}

namespace {

TrainOptions checked(TrainOptions options) {
  Problems problems;
  validate_options(options, "train", problems);
  problems.throw_if_any();
  return options;
}

PeriodScale scale_of(const data::Corpus& corpus, int64_t batches, int64_t accumulate) {
  return {.steps_per_epoch = std::ceil(static_cast<double>(batches) / static_cast<double>(accumulate)),
          .labels_per_epoch = static_cast<double>(std::max<int64_t>(1, corpus.info().target_tokens))};
}

}  // namespace

struct Trainer::Impl {
  Impl(TrainerInputs given, TrainOptions chosen, std::filesystem::path where)
      : inputs(std::move(given)),
        options(checked(std::move(chosen))),
        directory(std::move(where)),
        length(parse_period(options.length, "train.length")),
        world(*inputs.world),
        validation_inputs{inputs.validation, inputs.tokenizer, inputs.references, inputs.teacher, inputs.world},
        batches(inputs.corpus, options.batches,
                inputs.trainable.info().encoder_decoder ? data::RowForm::kSeparate : data::RowForm::kJoined),
        step_batches(
            batches, [this](const auto& examples) { return host_batch(examples); }, inputs.trainable.info().device,
            options.accumulate, world),
        scale(scale_of(inputs.corpus, batches.batches(0), options.accumulate)),
        schedule(options.schedule, length, scale),
        objective(make_objective(options.objective,
                                 {&inputs.trainable, &inputs.corpus, inputs.distilled, options.batches.token_budget})),
        optimizer(new_optimizer()),
        record(record_run(inputs, options)),
        checkpoints(directory / "checkpoints", record, world) {
    check_inputs(inputs);
    check_validation(inputs.trainable, validation_inputs, options.validation);
    check_groups();
    warn_of_idle_processes();
  }

  std::unique_ptr<Optimizer> new_optimizer() const {
    const auto& parameters = inputs.trainable.parameters();
    if (!options.shard_optimizer || world.is_alone()) return make_optimizer(parameters, options.optimizer);
    return std::make_unique<ShardedOptimizer>(parameters, options.optimizer, world);
  }

  bool validates() const { return inputs.validation != nullptr; }
  bool over() const { return state.finished || done(length, state.progressed(), length) >= 1; }
  std::filesystem::path best_directory(int64_t step) const { return train::best_directory(directory, step); }

  model::SaveOptions save_options() const {
    model::SaveOptions save;
    if (inputs.tokenizer) save.tokenizer = inputs.tokenizer->file();
    save.generation = inputs.generation;
    return save;
  }

  // Reads nothing that changes: threads call it too.
  HostBatch host_batch(const std::vector<int64_t>& examples) const {
    return make_host_batch(inputs.corpus, examples, inputs.trainable.info(), options.batches.pack_tokens);
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
    throw UserError({.where = "train.optimizer.groups",
                     .what = "every parameter is frozen",
                     .expected = "a parameter whose lr_factor is above 0"});
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

  // Restores what the leader finds, on all processes.
  void resume() {
    std::optional<StoredCheckpoint> found;
    if (world.leads()) found = restore();
    state = share_start(world, found, inputs.trainable, *optimizer);
    if (!world.leads()) return;
    log.emplace(directory,
                TrainingLogOptions{.progress = inputs.progress,
                                   .tensorboard = options.tensorboard,
                                   .last_step = state.step,
                                   .validated = !state.validation_due,
                                   .total_steps = static_cast<int64_t>(std::ceil(in_steps(length, length, scale)))});
  }

  // Restores weights from a checkpoint, if there is one, and returns it.
  std::optional<StoredCheckpoint> restore() {
    std::optional<StoredCheckpoint> found;
    if (const auto checkpoint = checkpoints.newest()) {
      found = checkpoints.restore(*checkpoint, inputs.trainable);
      if (!found->state.finished) log_info("going on from {}", checkpoint->string());
    } else if (!inputs.continue_from.empty()) {
      found = continue_run({inputs.continue_from, directory, options}, record, inputs.trainable);
      found->state.validation_due = found->state.validation_due && validates();
      state = found->state;
      require_more_length();
    }
    return found;
  }

  void require_more_length() const {
    if (!over()) return;
    throw UserError({.where = "train.length",
                     .what = "the run that `continue_from` names is not shorter",
                     .expected = fmt::format("more than {} steps, {:.6g} epochs, {} labels", state.step, state.epochs,
                                             state.labels),
                     .found = options.length,
                     .hint = "the length counts from the first step of the first run"});
  }

  StepSettings step_settings() {
    return {.dropout = options.dropout.value_or(inputs.trainable.dropout()),
            .seed = options.seed,
            .first_micro_step = static_cast<uint64_t>(state.micro_step),
            .pack_tokens = options.batches.pack_tokens,
            .autocast = trains_in_bf16(options.precision, inputs.trainable.info().device),
            .step = state.step + 1,
            .batches = &step_batches,
            .world = &world,
            .reduce_type = options.reduce_dtype == "bf16" ? std::optional(at::kBFloat16) : std::nullopt};
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

  void step() {
    const Stopwatch watch;
    const Progressed before = state.progressed();
    const MicroBatches data = step_batches.next(state.position);
    const double waited_before = world.waited();
    const StepResult result = accumulate_gradients(inputs.trainable, *objective, inputs.corpus, data, step_settings());
    stop_agreed = result.stop;
    count(data, result);
    const double lr = options.optimizer.lr * schedule.factor(before, state.progressed());
    if (result.nonfinite) {
      skip(*result.nonfinite);
    } else {
      optimizer->step(lr, gradient_scale(result, options.clip_norm));
      state.skipped_in_a_row = 0;
    }
    optimizer->zero_grad();
    waited += world.waited() - waited_before;
    log_step(result, lr, watch.seconds());
  }

  // Leaves the update of a step out, if the options allow it and not too many before it were left out. Errors:
  // RunError.
  void skip(Problem problem) {
    if (options.nonfinite == "stop") throw RunError(std::move(problem));
    ++state.skipped;
    if (++state.skipped_in_a_row > options.nonfinite_limit) {
      problem.what += fmt::format(", as in the {} steps before it, which were skipped (nonfinite_limit)",
                                  state.skipped_in_a_row - 1);
      throw RunError(std::move(problem));
    }
    if (world.leads()) log_warning("{}: the step is skipped ({} so far)", problem.what, state.skipped);
  }

  void log_step(const StepResult& result, double lr, double seconds) {
    add_to_window(state, result, options.clip_norm, seconds);
    StepMetrics metrics = window_metrics(state, lr, result.gradient_norm);
    if (!world.is_alone()) metrics.waited = waited / std::max(state.window_seconds, 1e-9);
    if (log) log->advance(metrics);
    if (state.step % options.log_every != 0) return;
    if (log) log->add(metrics);
    waited = 0;
    clear_window(state);
  }

  // Stays due if the run is stopped during it: a resumed run begins with it.
  void run_validation() {
    const Stopwatch watch;
    ValidationResult result;
    try {
      result = validate(inputs.trainable, validation_inputs, options.validation);
    } catch (const Interrupted&) {
      stop_agreed = true;
      return;
    }
    state.validation_due = false;
    const std::string& measure = options.validation.measure;
    const double value = value_of(result, measure);
    const std::string corpus = inputs.validation->file().string();
    require_finite_measure(result.loss, "loss", state.step, corpus);
    require_finite_measure(value, measure, state.step, corpus);
    const bool better = count_validation(state, value, measure);
    if (better && world.leads()) {
      // A run killed after this and before its next checkpoint comes here again.
      std::filesystem::remove_all(best_directory(state.step));
      inputs.trainable.save(best_directory(state.step), save_options());
    }
    if (log) log->add({state.step, better, watch.seconds()}, result);
    if (options.validation.patience > 0 && state.since_best >= options.validation.patience) {
      if (log) log_info("no better {} for {} validations: stopping", measure, state.since_best);
      state.finished = true;
    }
  }

  void save_checkpoint() {
    checkpoints.write(inputs.trainable, *optimizer, state, save_options());
    // From here on no resumed run needs an older best model.
    if (world.leads() && state.best_value) keep_best_only(directory, state.best_step);
  }

  void after_step(const Progressed& before) {
    state.validation_due = validates() && (due(options.validation.every, before) || over());
    complete_step(due(options.checkpoint_every, before));
  }

  // Validation, checkpoint or end, if due after a step, or if due when the run was stopped.
  void complete_step(bool checkpoint_due) {
    if (state.validation_due) run_validation();
    if (over() && !state.validation_due) state.finished = true;
    const bool stop = !state.finished && (world.is_alone() ? stop_requested() != 0 : stop_agreed);
    if (state.finished || stop || checkpoint_due) save_checkpoint();
    if (stop) {
      if (!world.is_alone()) request_stop(SIGTERM);  // another process may be the one that was asked
      throw_if_stop_requested(fmt::format("training stopped after step {}; the same command goes on from there ({})",
                                          state.step, (directory / "checkpoints").string()));
    }
  }

  // Writes the result; the model in memory becomes it.
  TrainResult finish() {
    train::require_gradients(inputs.trainable, false);
    const std::filesystem::path result = directory / "model";
    if (world.leads()) write_result(result);
    share_weights(world, inputs.trainable);
    return {.model = result, .state = state, .stopped_early = done(length, state.progressed(), length) < 1};
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
  ValidationInputs validation_inputs;
  data::BatchOrder batches;
  StepBatches step_batches;
  PeriodScale scale;
  Schedule schedule;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Optimizer> optimizer;
  RunRecord record;
  CheckpointFolder checkpoints;
  TrainingState state;
  std::optional<TrainingLog> log;  // the leader's
  bool stop_agreed = false;        // of several processes, one was asked to stop
  double waited = 0;               // seconds of the steps since the last line of the log
};

Trainer::Trainer(TrainerInputs inputs, TrainOptions options, std::filesystem::path directory)
    : impl_(std::make_unique<Impl>(std::move(inputs), std::move(options), std::move(directory))) {}

Trainer::~Trainer() = default;

TrainResult Trainer::run() {
  keep_freed_memory();
  impl_->resume();
  impl_->require_gradients();
  if (impl_->state.validation_due) impl_->complete_step(true);
  while (!impl_->over()) {
    const Progressed before = impl_->state.progressed();
    impl_->step();
    impl_->after_step(before);
  }
  return impl_->finish();
}

}  // namespace draftsmith::train
