#include "train/teacher/teacher_source.h"

#include <ATen/core/grad_mode.h>

#include "base/device_tensors.h"
#include "base/error.h"

namespace draftsmith::train {

namespace {

void require_whole_vocabulary(const model::TransformerModel& model) {
  if (!model.vocabulary_rows().pruned()) return;
  throw UserError({.where = "teacher " + model.info().name,
                   .what = "a model with a pruned vocabulary cannot be a teacher: it gives most ids no probability",
                   .expected = "a model with a row for each of its " + std::to_string(model.info().vocabulary) + " ids",
                   .found = std::to_string(model.config().draft_vocabulary.ids.size()) + " rows"});
}

}  // namespace

HiddenTeacher::HiddenTeacher(const Predictions& predictions) : predictions_(predictions) {
  require_whole_vocabulary(*predictions_.model);
  predictions_.hidden = predictions_.hidden.detach();
}

TeacherBlock HiddenTeacher::block(const at::Tensor& positions) {
  const at::NoGradGuard no_grad;
  return {.logits = logits(predictions_, predictions_.hidden.index_select(0, positions))};  // [C,V]
}

LiveTeacher::LiveTeacher(model::TransformerModel& model) : model_(model) {
  require_whole_vocabulary(model);
}

std::unique_ptr<TeacherDistributions> LiveTeacher::distributions(const Batch& batch) {
  const PlainArithmetic plain(model_.info().device.type());
  return std::make_unique<HiddenTeacher>(
      Predictions{.model = &model_, .hidden = hidden_at_labels(model_, batch, {}), .labels = batch.labels});
}

}  // namespace draftsmith::train
