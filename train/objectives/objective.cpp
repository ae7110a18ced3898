#include "train/objectives/objective.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "train/teacher/student_samples.h"

namespace draftsmith::train {
namespace {

// ---- Losses at positions

class SmoothedCrossEntropy : public PositionLoss {
 public:
  SmoothedCrossEntropy(at::Tensor labels, double smoothing, at::Tensor weights)
      : PositionLoss(std::move(weights)), labels_(std::move(labels)), smoothing_(smoothing) {}

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool gradient) override {
    return cross_entropy_losses(logits, labels_.narrow(0, rows.begin, rows.count), smoothing_, gradient);
  }

 private:
  at::Tensor labels_;  // [P]
  double smoothing_;
};

// Cross entropy that remembers where the logits are largest.
class Predicting : public PositionLoss {
 public:
  Predicting(at::Tensor labels, at::Tensor arg_maxs) : labels_(std::move(labels)), arg_maxs_(std::move(arg_maxs)) {}

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool /*gradient*/) override {
    const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
    arg_maxs_.narrow(0, rows.begin, rows.count).copy_(log_probs.argmax(1));
    return cross_entropy_values(log_probs, labels_.narrow(0, rows.begin, rows.count), 0);
  }

 private:
  at::Tensor labels_, arg_maxs_;  // [P]
};

// Positions [begin, begin + count) of a block.
TeacherBlock part_of(const TeacherBlock& block, int64_t begin, int64_t count) {
  if (block.logits.defined()) return {.logits = block.logits.narrow(0, begin, count)};
  return {.ids = block.ids.narrow(0, begin, count),
          .log_probs = block.log_probs.narrow(0, begin, count),
          .tail_log_mass = block.tail_log_mass.narrow(0, begin, count)};
}

// The loss of all predictions of one model at the same labels, which therefore share the teacher's blocks: each is made
// once, and freed before the next is made.
class Distillation : public PositionLoss {
 public:
  Distillation(const Targets& targets, TeacherDistributions& teacher, SharedRows shared, DistillOptions options)
      : PositionLoss(targets.weights),
        labels_(targets.labels),
        teacher_(teacher),
        shared_(std::move(shared)),
        options_(std::move(options)) {}

  void begin_block(const PositionRange& block) override {
    if (begin_ == block.begin) return;
    begin_ = block.begin;
    block_ = {};
    block_ = teacher_.block(labels_.kept.narrow(0, block.begin, block.count), shared_.ids);
  }

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool gradient) override {
    const at::Tensor labels = labels_.rows.narrow(0, rows.begin, rows.count);
    const TeacherBlock teacher = part_of(block_, rows.begin - begin_, rows.count);
    return distillation_losses(logits, labels, teacher, shared_, options_, gradient);
  }

 private:
  HeadLabels labels_;
  TeacherDistributions& teacher_;
  SharedRows shared_;
  DistillOptions options_;
  int64_t begin_ = -1;  // of the block
  TeacherBlock block_;
};

}  // namespace

std::shared_ptr<PositionLoss> cross_entropy_loss(const Targets& targets, double label_smoothing) {
  return std::make_shared<SmoothedCrossEntropy>(targets.labels.rows, label_smoothing, targets.weights);
}

std::shared_ptr<PositionLoss> distillation_loss(const Targets& targets, TeacherDistributions& teacher,
                                                SharedRows shared, const DistillOptions& options) {
  return std::make_shared<Distillation>(targets, teacher, std::move(shared), options);
}

namespace {

// ---- Sums over predictions

Targets targets_of(const Predictions& predictions, const at::Tensor& sequences) {
  Targets targets{.labels = labels_in_head(*predictions.model, predictions.labels)};
  if (!sequences.defined()) return targets;
  const at::Tensor of_label = sequences.index_select(0, targets.labels.kept);  // [Q]
  const at::Tensor labels = at::bincount(of_label);                            // [sequences]
  targets.weights = labels.index_select(0, of_label).to(at::kDouble).reciprocal();
  targets.sequences = labels.gt(0).sum().item<int64_t>();
  return targets;
}

// Predictions that share their targets and their loss.
struct SharedLoss {
  const Predictions* first;
  Targets targets;
  std::shared_ptr<PositionLoss> loss;
};

// Makes the loss of predictions at their targets.
using MakeLoss = std::function<std::shared_ptr<PositionLoss>(const Predictions& predictions, const Targets& targets)>;

// Returns the sum of the losses of all predictions, each times its weight, computed together (linear_loss()); the
// counts are the first one's. Predictions of one model at the same labels (its exits) share their loss. `sequences`
// int64 [P]: the number of each label's sequence, from 0 on. If it is given, the loss of a sequence is the mean over
// its labels that the head has rows for, and the sum is over sequences. All predictions are at P labels.
Loss sum_of_losses(const TrainableOutput& output, const at::Tensor& sequences, const MakeLoss& make) {
  std::deque<SharedLoss> all;
  std::vector<LossTerm> terms;
  for (const Predictions& own : output.predictions) {
    const auto same = [&](const SharedLoss& one) {
      return one.first->model == own.model && one.first->labels.is_same(own.labels) && one.first->taught == own.taught;
    };
    auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) {
      const SharedLoss& added = all.emplace_back(SharedLoss{&own, targets_of(own, sequences), nullptr});
      all.back().loss = make(own, added.targets);
      found = all.end() - 1;
    }
    terms.push_back({.hidden = found->targets.labels.of(own.hidden),
                     .head = head_of(own),
                     .loss = found->loss,
                     .factor = own.weight});
  }
  Loss loss{linear_loss(terms), terms.front().hidden.size(0)};
  if (sequences.defined()) loss.sequences = all.front().targets.sequences;
  return loss;
}

// Returns the cross entropy of all predictions. `sequences` as above.
Loss cross_entropy_of(const TrainableOutput& output, double label_smoothing, const at::Tensor& sequences = {}) {
  return sum_of_losses(output, sequences, [&](const Predictions&, const Targets& targets) {
    return cross_entropy_loss(targets, label_smoothing);
  });
}

// Refuses a student that lacks ids of a top-k cache: their probability is part of the bucket for all other ids and
// cannot be separated from it, so the divergence would compare distributions over different ids.
void require_all_ids(const TeacherSource& teacher, const model::TransformerModel& student) {
  if (!teacher.temperature() || !SharedRows(student.config(), teacher.vocabulary()).lacks) return;
  const size_t kept = student.config().draft_vocabulary.ids.size();
  throw UserError(
      {.where = "teacher " + teacher.name(),
       .what = fmt::format("the student {} lacks ids of this teacher, but only the teacher's likeliest ids are stored",
                           student.info().name),
       .expected = fmt::format("a student with all {} ids", teacher.vocabulary()),
       .found = kept > 0 ? fmt::format("a pruned vocabulary of {} ids", kept)
                         : fmt::format("{} ids", student.config().vocabulary),
       .hint = "distil from a live teacher (teacher = DIR), or store whole distributions (k = 0)"});
}

void require_taught_labels(const TrainableOutput& output) {
  const int64_t labels = output.predictions.front().labels.size(0);
  for (const Predictions& predictions : output.predictions) {
    if (!predictions.taught || predictions.labels.size(0) == labels) continue;
    throw UserError({.where = "objective distill",
                     .what = "this model predicts other tokens than its teacher, so it cannot be distilled",
                     .expected = "objective cross_entropy"});
  }
}

}  // namespace

Loss distillation_of(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                     const DistillOptions& options, const at::Tensor& sequences) {
  require_taught_labels(output);
  return sum_of_losses(output, sequences, [&](const Predictions& predictions, const Targets& targets) {
    if (!predictions.taught) return cross_entropy_loss(targets, options.label_smoothing);
    const at::Device device = targets.labels.rows.device();
    return distillation_loss(targets, teacher, {predictions.model->config(), teacher_vocabulary, device}, options);
  });
}

Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor arg_maxs = at::empty_like(labels);
  const auto loss = std::make_shared<Predicting>(labels, arg_maxs);
  return {.loss = {linear_loss({{.hidden = hidden, .head = head, .loss = loss}}), hidden.size(0)},
          .arg_maxs = arg_maxs};
}

namespace {

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options) : options_(options) {}
  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override {
    return cross_entropy_of(trainable.forward(batch, dropout), options_.label_smoothing);
  }

 private:
  CrossEntropyOptions options_;
};

// ---- Distillation

void check_source(const DistillOptions& options, const ObjectiveInputs& inputs) {
  Problems problems;
  const TeacherSource& teacher = *inputs.teacher;
  const auto made_at = teacher.temperature();
  if (made_at && *made_at != options.temperature) {
    problems.add({.where = "teacher " + teacher.name(),
                  .what = "the stored distributions are of another temperature than the objective's, and a truncated "
                          "one cannot be changed",
                  .expected = fmt::format("temperature {}", options.temperature),
                  .found = fmt::format("temperature {}", *made_at),
                  .hint = "set objective.distill.temperature to it, or make the cache again at the other"});
  }
  teacher.check(*inputs.corpus, inputs.trainable->info(), problems);
  problems.throw_if_any();
}

// Returns the sequences of the labels of all predictions.
at::Tensor sequences_of(const TrainableOutput& output, const Batch& batch) {
  for (const Predictions& predictions : output.predictions) {
    if (predictions.labels.size(0) == batch.label_count()) continue;
    throw UserError({.where = "objective.distill.normalization",
                     .what = "this model predicts some of a sequence's tokens several times, or not at all",
                     .expected = "tokens",
                     .found = "sequences"});
  }
  return batch.sequences();
}

class Distill : public Objective {
 public:
  // A teacher is given, or the trained models teach; samples need models that decode and a live teacher. Errors
  // (UserError, all at once): a teacher that does not fit the student or the corpus, a cache of another temperature.
  // loss() refuses, at the first batch, a student that lacks ids of a top-k cache.
  Distill(const DistillOptions& options, const ObjectiveInputs& inputs) : options_(options), teacher_(inputs.teacher) {
    if (teacher_ != nullptr) check_source(options, inputs);
    if (options.on_policy.share == 0) return;
    const model::ModelInfo* live = teacher_ != nullptr ? teacher_->live() : nullptr;
    samples_.emplace(options.on_policy, *inputs.corpus, inputs.token_budget,
                     live != nullptr ? live->max_positions : inputs.trainable->info().max_positions);
  }

  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override {
    if (!samples_ || !samples_->takes(dropout.step)) return on(trainable, batch, dropout, options_);
    DistillOptions options = options_;
    options.lambda = 0;
    Loss loss = on(trainable, samples_->batch(trainable, batch, dropout.step), dropout, options);
    // The divergence has the same weight in all batches; cross entropy is left out for tokens that the student wrote.
    if (options_.lambda > 0) loss.sum = loss.sum * (1 - options_.lambda);
    return loss;
  }

 private:
  Loss on(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout,
          const DistillOptions& options) {
    const TrainableOutput output = trainable.forward(batch, dropout);
    const at::Tensor sequences = options.normalization == "sequences" ? sequences_of(output, batch) : at::Tensor();
    if (options.lambda == 1) return cross_entropy_of(output, options.label_smoothing, sequences);  // asks no teacher
    if (teacher_ != nullptr) {
      for (const Predictions& predictions : output.predictions) {
        if (predictions.taught) require_all_ids(*teacher_, *predictions.model);
      }
      return distillation_of(output, *teacher_->distributions(batch), teacher_->vocabulary(), options, sequences);
    }
    HiddenTeacher teacher(output.teacher.value());
    return distillation_of(output, teacher, output.teacher->model->config().vocabulary, options, sequences);
  }

  DistillOptions options_;
  TeacherSource* teacher_;  // nullptr: the trained models' own
  std::optional<StudentSamples> samples_;
};

}  // namespace

Fields<CrossEntropyOptions> CrossEntropyOptions::fields() {
  return Fields<CrossEntropyOptions>("cross entropy")
      .add("label_smoothing", &CrossEntropyOptions::label_smoothing, Range{0, 0.99},
           "Share e of the target distribution that is spread evenly over the vocabulary: "
           "loss = (1-e) * -log q(y) + e/V * sum of -log q(v). 0: off.");
}

Fields<ObjectiveOptions> ObjectiveOptions::fields() {
  return Fields<ObjectiveOptions>("training objective")
      .add("name", &ObjectiveOptions::name, Choices{"cross_entropy", "distill"}, "What training minimises.")
      .add("cross_entropy", &ObjectiveOptions::cross_entropy, ChosenByName{}, "Options of cross_entropy.")
      .add("distill", &ObjectiveOptions::distill, ChosenByName{}, "Options of distill.");
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs) {
  throw_problems_of(validate_options<ObjectiveOptions>, options, "objective");
  if (options.name == "distill") return std::make_unique<Distill>(options.distill, inputs);
  return std::make_unique<CrossEntropy>(options.cross_entropy);
}

}  // namespace draftsmith::train
