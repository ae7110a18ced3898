#include "train/teacher/teacher_source.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device_tensors.h"

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

void TeacherSource::check(const data::Corpus& corpus, const model::ModelInfo& student, Problems& problems) const {
  const auto refuse = [&](const std::string& what, const std::string& expected, const std::string& found) {
    problems.add({.where = "teacher " + name(),
                  .what = what,
                  .expected = expected,
                  .found = found,
                  .hint = "a teacher must be of the student's own family and tokenizer"});
  };
  if (vocabulary() < corpus.info().vocabulary) {
    refuse("the corpus " + corpus.file().string() + " has more token ids than the teacher",
           fmt::format("at least {}", corpus.info().vocabulary), std::to_string(vocabulary()));
  }
  if (live() == nullptr) return;
  const model::ModelInfo& info = *live();
  if (info.decoder_start != student.decoder_start) {
    refuse("teacher and student " + student.name + " begin their outputs with different tokens",
           fmt::format("decoder_start_token_id {}", student.decoder_start), std::to_string(info.decoder_start));
  }
  if (info.encoder_decoder != student.encoder_decoder) {
    const auto form = [](const model::ModelInfo& model) {
      return model.encoder_decoder ? "an encoder-decoder" : "decoder-only";
    };
    refuse("teacher and student " + student.name + " read their inputs differently", form(student), form(info));
  }
  if (student.pad >= info.vocabulary) {
    refuse("the teacher lacks the padding token of the student " + student.name,
           fmt::format("more than {} ids", student.pad), std::to_string(info.vocabulary));
  }
}

HiddenTeacher::HiddenTeacher(const Predictions& predictions) : predictions_(predictions) {
  require_whole_vocabulary(*predictions_.model);
  predictions_.hidden = predictions_.hidden.detach();
}

TeacherBlock HiddenTeacher::block(const at::Tensor& positions, const at::Tensor& ids) {
  const PlainArithmetic plain(predictions_.hidden.device().type());  // logits are not rounded to bf16
  Predictions read = predictions_;
  const bool by_rows = ids.defined() && !read.model->decoding_only();
  if (by_rows) {
    read.head = head_of(read);
    for (at::Tensor* part : {&read.head.weight, &read.head.up, &read.head.bias}) {
      if (part->defined()) *part = part->index_select(0, ids);
    }
  }
  const at::Tensor values = logits(read, read.hidden.index_select(0, positions));  // [C,n], or [C,V]
  return {.logits = ids.defined() && !by_rows ? values.index_select(1, ids) : values};
}

LiveTeacher::LiveTeacher(model::TransformerModel& model) : model_(model) {
  require_whole_vocabulary(model);
}

std::unique_ptr<TeacherDistributions> LiveTeacher::distributions(const Batch& batch) {
  const PlainArithmetic plain(model_.info().device.type(), model_.decoding_only());
  return std::make_unique<HiddenTeacher>(
      Predictions{.model = &model_, .hidden = hidden_at_labels(model_, batch, {}), .labels = batch.labels});
}

}  // namespace draftsmith::train
