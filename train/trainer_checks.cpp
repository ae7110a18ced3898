#include "train/trainer_checks.h"

#include <stdexcept>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::train {

namespace {

// The teacher is given the batches that were made for the model.
void check_teacher(const TrainerInputs& inputs, Problems& problems) {
  const model::ModelInfo& info = inputs.model.info();
  const model::ModelInfo& teacher = inputs.teacher->info();
  const std::string where = "teacher " + teacher.name;
  const int64_t vocabulary = inputs.validation->info().vocabulary;
  if (teacher.vocabulary < vocabulary) {
    problems.add({.where = where,
                  .what = "the validation corpus has more token ids than the teacher",
                  .expected = fmt::format("at least {}", vocabulary),
                  .found = std::to_string(teacher.vocabulary),
                  .hint = "alpha needs a teacher with the model's own tokenizer"});
  }
  if (teacher.decoder_start != info.decoder_start) {
    problems.add({.where = where,
                  .what = "teacher and model begin their outputs with different tokens",
                  .expected = fmt::format("decoder_start_token_id {}", info.decoder_start),
                  .found = std::to_string(teacher.decoder_start),
                  .hint = "alpha needs a teacher of the model's own family and tokenizer"});
  }
}

}  // namespace

void check_inputs(const TrainerInputs& inputs) {
  const model::ModelInfo& info = inputs.model.info();
  if (info.dtype != at::kFloat && info.dtype != at::kDouble) {
    throw std::logic_error("training updates fp32 weights; convert the model first");
  }
  Problems problems;
  const auto check_corpus = [&](const data::Corpus& corpus) {
    if (corpus.size() == 0) problems.add({.where = corpus.file().string(), .what = "the corpus has no examples"});
    if (corpus.info().vocabulary <= info.vocabulary) return;
    problems.add({.where = corpus.file().string(),
                  .what = "the corpus has more token ids than the model",
                  .expected = fmt::format("at most {}", info.vocabulary),
                  .found = std::to_string(corpus.info().vocabulary),
                  .hint = "tokenize the corpus with the model's own tokenizer"});
  };
  check_corpus(inputs.corpus);
  if (inputs.validation) check_corpus(*inputs.validation);
  if (inputs.validation && inputs.teacher) check_teacher(inputs, problems);
  problems.throw_if_any();
}

}  // namespace draftsmith::train
