#include "train/trainer_checks.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "base/error.h"
#include "data/corpus/batches.h"
#include "train/teacher/teacher_source.h"

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

}  // namespace draftsmith::train
