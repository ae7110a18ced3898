#include "train/objectives/distill.h"

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::train {
namespace {

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
    block_ = teacher_.block(labels_.kept.narrow(0, block.begin, block.count));
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

// Checks that a live teacher can read the batches that are made for the student.
void check_live(const TeacherSource& teacher, const model::ModelInfo& student, Problems& problems) {
  const model::ModelInfo& info = *teacher.live();
  if (info.decoder_start != student.decoder_start) {
    problems.add({.where = "teacher " + teacher.name(),
                  .what = fmt::format("teacher and student {} begin their outputs with different tokens", student.name),
                  .expected = fmt::format("decoder_start_token_id {}", student.decoder_start),
                  .found = std::to_string(info.decoder_start),
                  .hint = "a teacher must be of the student's own family and tokenizer"});
  }
  if (info.encoder_decoder != student.encoder_decoder) {
    const auto form = [](const model::ModelInfo& model) {
      return model.encoder_decoder ? "an encoder-decoder" : "decoder-only";
    };
    problems.add({.where = "teacher " + teacher.name(),
                  .what = fmt::format("teacher and student {} read their inputs differently", student.name),
                  .expected = form(student),
                  .found = form(info)});
  }
  if (student.pad >= info.vocabulary) {
    problems.add({.where = "teacher " + teacher.name(),
                  .what = fmt::format("the teacher lacks the padding token of the student {}", student.name),
                  .expected = fmt::format("more than {} ids", student.pad),
                  .found = std::to_string(info.vocabulary)});
  }
}

void check_source(const DistillOptions& options, const ObjectiveInputs& inputs, Problems& problems) {
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
  const int64_t ids = inputs.corpus->info().vocabulary;
  if (teacher.vocabulary() < ids) {
    problems.add({.where = "teacher " + teacher.name(),
                  .what = "the corpus " + inputs.corpus->file().string() + " has more token ids than the teacher",
                  .expected = fmt::format("at least {}", ids),
                  .found = std::to_string(teacher.vocabulary()),
                  .hint = "a teacher must have the student's own tokenizer"});
  }
  if (teacher.live() != nullptr) check_live(teacher, inputs.trainable->info(), problems);
}

void check_inputs(const DistillOptions& options, const ObjectiveInputs& inputs) {
  if (inputs.trainable == nullptr || inputs.corpus == nullptr) {
    throw std::logic_error("distillation needs the trained models and a corpus");
  }
  Problems problems;
  if (inputs.teacher != nullptr) check_source(options, inputs, problems);
  problems.throw_if_any();
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

}  // namespace

Fields<DistillOptions> DistillOptions::fields() {
  using T = DistillOptions;
  return Fields<T>("distillation")
      .add("lambda", &T::lambda, Range{0, 1},
           "Weight of cross entropy on the corpus's tokens: loss = lambda * CE + (1 - lambda) * T^2 * D(p, q), p the "
           "teacher's and q the student's distribution at temperature T. 1: cross entropy alone.")
      .add("divergence", &T::divergence, Choices(divergence_names()),
           "D: forward_kl is KL(p||q), reverse_kl is KL(q||p), jsd is beta * KL(p||m) + (1 - beta) * KL(q||m) with "
           "m = beta * p + (1 - beta) * q, tv is half the sum of |p - q|: what speculative sampling rejects; "
           "nla is -log(1 - tv), lk goes from forward_kl to tv as the acceptance 1 - tv grows.")
      .add("beta", &T::beta, Above{0}, Range{0, 0.999}, "Weight of the teacher in jsd.")
      .add("temperature", &T::temperature, Above{0}, "T: both logits are divided by it before D.")
      .add("label_smoothing", &T::label_smoothing, Range{0, 0.99}, "Of the cross entropy, as in cross_entropy.")
      .add(
          "normalization", &T::normalization, Choices{"tokens", "sequences"},
          "What a step's loss is the mean of. tokens: all labels count alike. sequences: each sequence's mean over its "
          "labels counts alike (DistillSpec), so that labels of short outputs count more.")
      .add("on_policy", &T::on_policy, "Learning from samples of the student.")
      .check([](const DistillOptions& options, const std::string& where, Problems& problems) {
        if (options.on_policy.share == 0 || options.lambda < 1) return;
        problems.add({.where = where + ".on_policy.share",
                      .what = "samples of the student teach by the divergence, which has no weight",
                      .expected = "0, or lambda below 1",
                      .found = fmt::format("{} with lambda = 1", options.on_policy.share)});
      });
}

std::shared_ptr<PositionLoss> distillation_loss(const Targets& targets, TeacherDistributions& teacher,
                                                SharedRows shared, const DistillOptions& options) {
  return std::make_shared<Distillation>(targets, teacher, std::move(shared), options);
}

Loss distillation_of(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                     const DistillOptions& options, const at::Tensor& sequences) {
  require_taught_labels(output);
  return sum_of_losses(output, sequences, [&](const Predictions& predictions, const Targets& targets) {
    if (!predictions.taught) return cross_entropy_loss(targets, options.label_smoothing);
    const at::Device device = targets.labels.rows.device();
    return distillation_loss(targets, teacher, {predictions.model->config(), teacher_vocabulary, device}, options);
  });
}

Distill::Distill(const DistillOptions& options, const ObjectiveInputs& inputs)
    : options_(options), teacher_(inputs.teacher) {
  check_inputs(options, inputs);
  if (options.on_policy.share == 0) return;
  const model::ModelInfo* live = teacher_ != nullptr ? teacher_->live() : nullptr;
  samples_.emplace(options.on_policy, *inputs.corpus, inputs.token_budget, live != nullptr ? live->max_positions : 0);
}

Loss Distill::loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) {
  if (!samples_ || !samples_->takes(dropout.step)) return on(trainable, batch, dropout, options_);
  DistillOptions options = options_;
  options.lambda = 0;
  Loss loss = on(trainable, samples_->batch(trainable, batch, dropout.step), dropout, options);
  // The divergence has the same weight in all batches; cross entropy is left out for tokens that the student wrote.
  if (options_.lambda > 0) loss.sum = loss.sum * (1 - options_.lambda);
  return loss;
}

Loss Distill::on(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout,
                 const DistillOptions& options) {
  const TrainableOutput output = trainable.forward(batch, dropout);
  const at::Tensor sequences = options.normalization == "sequences" ? sequences_of(output, batch) : at::Tensor();
  if (options.lambda == 1) return cross_entropy_of(output, options.label_smoothing, sequences);  // no teacher is asked
  if (teacher_ != nullptr) {
    for (const Predictions& predictions : output.predictions) {
      if (predictions.taught) require_all_ids(*teacher_, *predictions.model);
    }
    return distillation_of(output, *teacher_->distributions(batch), teacher_->vocabulary(), options, sequences);
  }
  HiddenTeacher teacher(output.teacher.value());
  return distillation_of(output, teacher, output.teacher->model->config().vocabulary, options, sequences);
}

}  // namespace draftsmith::train
