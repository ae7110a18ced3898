// Groups of 1, 2 and 3 processes train to the same weights and losses, to 1e-12 in fp64, whatever they train; and what
// surrounds their steps: stops, another world size afterwards, validation, steps that are not finite.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <gmock/gmock.h>

#include "base/signals.h"
#include "model/files/checkpoint.h"
#include "tests/support/captured_log.h"
#include "tests/support/models.h"
#include "tests/support/process_groups.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/trainable/fixtures.h"
#include "train/trainer.h"

namespace draftsmith::train {
namespace {

using testing::HasSubstr;
using testing_support::run_in_group;

// Relative to the largest value of a tensor; runs are in fp64.
constexpr double kGroupTolerance = 1e-12;

// End of a run in one process.
struct Ended {
  Weights weights = {};
  TrainingState state = {};
  std::string error = {};  // empty: none
};

// One process that trains.
struct Process {
  ProcessGroup& world;
  const data::Corpus& corpus;
  const data::Corpus* validation = nullptr;
  TrainOptions options;
  std::filesystem::path directory;  // the leader's
  Ended& ended;

  // Only the leader's directory is the run's: nobody else may need it.
  void train(TrainableModel& trainable, TeacherSource* distilled = nullptr) const {
    const auto own = world.leads() ? directory : directory / ("of process " + std::to_string(world.rank()));
    try {
      TrainerInputs inputs{.trainable = trainable, .corpus = corpus, .distilled = distilled, .world = &world};
      inputs.validation.corpus = validation;
      ended.state = run_training(inputs, options, own).state;
    } catch (const Error& error) {
      ended.error = error.what();
    }
    for (const auto& [name, value] : trainable.parameters()) ended.weights[name] = value.detach().clone();
    EXPECT_EQ(std::filesystem::exists(own), world.leads());
  }
};

// Makes models of its own, and trains them as the process wants.
using Trainee = std::function<void(const Process&)>;

// Returns whether two numbers are equal to the tolerance; a number that is not finite equals none.
bool agree(double a, double b, double scale) {
  return std::abs(a - b) <= kGroupTolerance * scale;
}

void expect_same_weights(const Weights& found, const Weights& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    const auto same = found.find(name);
    const double apart = same == found.end() ? INFINITY : difference(same->second, value);
    EXPECT_TRUE(agree(apart, 0, largest(value))) << name << " by " << apart << " of " << largest(value);
  }
}

void expect_same_json(const nlohmann::json& found, const nlohmann::json& expected, const std::string& place) {
  if (expected.is_structured() && found.type() == expected.type() && found.size() == expected.size()) {
    for (const auto& [key, value] : expected.items()) {
      const bool has = expected.is_array() || found.contains(key);
      EXPECT_TRUE(has) << place << "/" << key;
      if (has) expect_same_json(expected.is_array() ? found[std::stoul(key)] : found[key], value, place + "/" + key);
    }
  } else if (expected.is_number_float() && found.is_number_float()) {
    EXPECT_TRUE(agree(found, expected, std::abs(expected.get<double>()))) << place << ": " << found << ", " << expected;
  } else {
    EXPECT_EQ(found, expected) << place;
  }
}

std::unique_ptr<model::TransformerModel> t5_of_seed(uint64_t seed) {
  return model::varied_model(tiny_config(), seed);
}

// A T5 whose files hold fp64, so that a resumed run is equal to a whole one beyond the digits of fp32. Asks its process
// to stop at a micro-batch, if it is given one.
class KeptInFp64 : public PlainTrainable {
 public:
  explicit KeptInFp64(model::TransformerModel& model, std::optional<uint64_t> stop_at)
      : PlainTrainable(model), stop_at_(stop_at) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    if (dropout.step == stop_at_) request_stop(SIGTERM);
    return PlainTrainable::forward(batch, dropout);
  }
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override {
    model::SaveOptions exact = options;
    exact.dtype = at::kDouble;
    PlainTrainable::save(directory, exact);
  }

 private:
  std::optional<uint64_t> stop_at_;
};

Trainee kept_in_fp64(std::optional<uint64_t> stop_at = {}, uint64_t seed = 5) {
  return [=](const Process& process) {
    const auto model = t5_of_seed(seed);
    KeptInFp64 trainable(*model, stop_at);
    process.train(trainable);
  };
}

// Corpora are small: three steps an epoch, of 6, 6 and 1 micro-batches.
class DataParallel : public testing::Test {
 protected:
  static constexpr int64_t kSteps = 20;

  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 78, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
  }

  TrainOptions group_options() const {
    TrainOptions options = tiny_options();
    options.length = std::to_string(kSteps) + " steps";
    options.accumulate = 6;
    options.batches.token_budget = 1000;
    options.batches.max_rows = 6;
    options.clip_norm = 0.5;
    options.log_every = 1;
    options.checkpoint_every = "";
    return options;
  }
  // Options of an optimizer with a slow and a frozen group.
  TrainOptions grouped(const std::string& name) const {
    TrainOptions options = group_options();
    options.optimizer.name = name;
    options.optimizer.weight_decay = 0.01;
    if (name == "adafactor") options.optimizer.adafactor = {.scale_parameter = true, .beta1 = 0.9};
    options.optimizer.groups = {{.parameters = "*.query.weight", .lr_factor = 0.5},
                                {.parameters = "decoder.final_norm.weight", .lr_factor = 0}};
    options.keep = "last";
    return options;
  }

  // Trains in a group of `size` processes in FOLDER/<run>; returns what each process ended with, by rank.
  std::vector<Ended> train_in(int64_t size, const TrainOptions& options, const std::string& run,
                              const Trainee& trainee) const {
    const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
    std::vector<Ended> all(static_cast<size_t>(size));
    run_in_group(size, [&](ProcessGroup& world) {
      trainee({.world = world,
               .corpus = corpus,
               .validation = validates_ ? &validation : nullptr,
               .options = options,
               .directory = folder_ / run,
               .ended = all[static_cast<size_t>(world.rank())]});
    });
    return all;
  }

  // Returns the lines of a run's log without what differs from group to group.
  nlohmann::json log_of(const std::string& run) const {
    std::vector<nlohmann::json> lines = untimed_log(folder_ / run);
    for (nlohmann::json& line : lines) {
      line.erase("waited");
      line.erase("decoding_seconds");
    }
    return lines;
  }

  // Expects that groups of 2 and 3 processes end as a run of one does: with the same weights in each process, and the
  // same log of losses, norms, rates and counters. A step clips, and the last of an epoch has a single micro-batch.
  void expect_equal_training(const TrainOptions& options, const Trainee& trainee) const {
    const Ended alone = train_in(1, options, "group of 1", trainee).front();
    ASSERT_EQ(alone.error, "");
    const nlohmann::json expected = log_of("group of 1");
    ASSERT_EQ(std::ssize(expected), kSteps);
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                            [](const auto& line) { return line.at("clipped").template get<double>() > 0; }));
    EXPECT_NE(expected.front().at("loss"), expected.back().at("loss"));
    for (const int64_t size : {2, 3}) {
      const std::string run = "group of " + std::to_string(size);
      SCOPED_TRACE(run);
      for (const Ended& ended : train_in(size, options, run, trainee)) {
        EXPECT_EQ(ended.error, "");
        EXPECT_EQ(ended.state.labels, alone.state.labels);
        expect_same_weights(ended.weights, alone.weights);
      }
      expect_same_json(log_of(run), expected, "metrics.jsonl");
    }
  }

  std::string optimizer_file(const std::string& run) const {
    return folder_ / run / "checkpoints" / "last" / "optimizer.safetensors";
  }

  // Takes a request to stop back.
  void forget_stop() {
    watch_.reset();
    watch_.emplace();
  }

  TemporaryDirectory folder_;
  bool validates_ = false;
  std::optional<SignalWatch> watch_{std::in_place};  // no test leaves a request to stop behind
};

// A model with a parameter that one micro-batch of an epoch reads, in its second step.
class SeldomRead : public PlainTrainable {
 public:
  explicit SeldomRead(model::TransformerModel& model) : PlainTrainable(model), all_(model.parameters()) {
    all_["seldom"] = at::full({model.config().width}, 0.1, at::kDouble);
  }
  const std::map<std::string, at::Tensor>& parameters() const override { return all_; }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    TrainableOutput output = PlainTrainable::forward(batch, dropout);
    at::Tensor& hidden = output.predictions.front().hidden;
    if (dropout.step % 13 == 7) hidden = hidden + all_.at("seldom");
    return output;
  }

 private:
  std::map<std::string, at::Tensor> all_;
};

TEST_F(DataParallel, IsEqualForAT5WithAParameterThatMostMicroBatchesLeaveWithoutGradient) {
  expect_equal_training(group_options(), [](const Process& process) {
    const auto model = t5_of_seed(5);
    SeldomRead trainable(*model);
    process.train(trainable);
    EXPECT_GT(difference(process.ended.weights.at("seldom"), at::full({}, 0.1, at::kDouble)), 1e-3);
  });
}

TEST_F(DataParallel, IsEqualForALessonOnTheStudentsOwnSamples) {
  TrainOptions options = group_options();
  options.objective = {.name = "distill", .distill = {.lambda = 0.4}};
  options.objective.distill.on_policy = {.share = 0.5, .max_new_tokens = 9};
  expect_equal_training(options, [](const Process& process) {
    const auto student = t5_of_seed(5), teacher = t5_of_seed(6);
    LiveTeacher source(*teacher);
    PlainTrainable trainable(*student);
    process.train(trainable, &source);
  });
}

TEST_F(DataParallel, AStoppedRunGoesOnWithItsBitsAndWithAnyWorldSize) {
  validates_ = true;
  for (const char* name : {"adamw", "adafactor"}) {
    SCOPED_TRACE(name);
    const std::string run = name;
    TrainOptions options = grouped(name);
    options.validation.every = "4 steps";
    const Ended alone = train_in(1, options, run + " of one", kept_in_fp64()).front();
    const Ended whole = train_in(2, options, run + " of two", kept_in_fp64()).front();
    ASSERT_EQ(alone.error + whole.error, "");
    // Of step 10: the fourth of its six, which process 1 makes.
    for (const Ended& ended : train_in(2, options, run, kept_in_fp64(/*stop_at=*/42))) {
      EXPECT_THAT(ended.error, HasSubstr("training stopped after step 10"));
    }
    for (const int64_t size : {1, 2, 3}) {
      SCOPED_TRACE("going on with " + std::to_string(size));
      forget_stop();
      const std::string resumed = run + " going on with " + std::to_string(size);
      std::filesystem::copy(folder_ / run, folder_ / resumed,
                            std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
      for (const Ended& ended : train_in(size, options, resumed, kept_in_fp64({}, /*seed=*/8))) {
        EXPECT_EQ(ended.error, "");
        EXPECT_EQ(ended.state.step, kSteps);
        expect_same_weights(ended.weights, alone.weights);
        if (size != 2) continue;
        for (const auto& [weight, value] : whole.weights) EXPECT_TRUE(value.equal(ended.weights.at(weight))) << weight;
      }
      expect_same_json(log_of(resumed), log_of(run + " of one"), "metrics.jsonl");
    }
  }
}

TEST_F(DataParallel, RefusesACheckpointOfAnotherOptimizer) {
  const TrainOptions options = grouped("adamw");
  train_in(1, options, "run", kept_in_fp64());
  train_in(1, grouped("adafactor"), "other", kept_in_fp64());
  std::filesystem::copy_file(optimizer_file("other"), optimizer_file("run"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(train_in(1, options, "run", kept_in_fp64()).front().error,
              HasSubstr("the optimizer's state does not fit this run"));
}

TEST_F(DataParallel, ANanOfOneProcessEndsAllWithTheSameError) {
  const Trainee poisoned = [](const Process& process) {
    const auto model = t5_of_seed(5);
    PoisonedTrainable trainable(*model, 1);
    process.train(trainable);
  };
  const std::string expected = train_in(1, group_options(), "one", poisoned).front().error;
  EXPECT_THAT(expected, HasSubstr("the loss is not finite in training step"));
  for (const Ended& ended : train_in(3, group_options(), "three", poisoned)) EXPECT_EQ(ended.error, expected);
}

TEST_F(DataParallel, WarnsOnceOfProcessesThatHaveNothingToDo) {
  TrainOptions options = group_options();
  options.accumulate = 2;
  const CapturedLog log;
  train_in(3, options, "three", kept_in_fp64());
  EXPECT_EQ(log.warnings(), 1) << log.text();
  EXPECT_THAT(log.text(), HasSubstr("3 processes share 2 micro-batches a step, so 1 do nothing"));
}

}  // namespace
}  // namespace draftsmith::train
