#include "recipes/stages/training_inputs.h"

#include <utility>

#include <fmt/format.h>

#include "model/files/model_directory.h"
#include "recipes/stages/data_stages.h"

namespace draftsmith::recipes {

namespace {

std::string short_hash(const std::string& hash) {
  return hash.substr(0, 16);
}

std::string named(const data::TeacherCacheInfo& info, const char* key) {
  const auto found = info.provenance.find(key);
  return found == info.provenance.end() ? "one that the cache does not name" : found->second;
}

}  // namespace

TrainingData::TrainingData(const std::filesystem::path& tokenizer_file, const std::filesystem::path& corpus_file,
                           const std::optional<std::filesystem::path>& validation_corpus)
    : tokenizer(data::load_tokenizer(tokenizer_file)), corpus(corpus_file) {
  const auto require_tokenizer = [&](const data::Corpus& one) {
    require_same_tokenizer(tokenizer->hash(), one.info().tokenizer_hash, one.file(),
                           "prepare it with the tokenizer of this stage");
  };
  require_tokenizer(corpus);
  if (validation_corpus) require_tokenizer(validation.emplace(*validation_corpus));
}

train::TrainerInputs TrainingData::inputs(train::TrainableModel& trainable, const StageContext& run) const {
  train::TrainerInputs inputs(trainable, corpus);
  inputs.validation = validation ? &*validation : nullptr;
  inputs.tokenizer = tokenizer.get();
  inputs.identity = run.identity;
  inputs.progress = run.execution.progress();
  inputs.world = run.execution.world;
  return inputs;
}

data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher) {
  data::TeacherCache cache(file);
  const data::TeacherCacheInfo& info = cache.info();
  Problems problems;
  const auto add = [&](const char* what, std::string expected, std::string found, const char* hint) {
    problems.add({file.string(), what, std::move(expected), std::move(found), hint});
  };
  if (info.tokenizer_hash != corpus.info().tokenizer_hash) {
    add("the teacher cache was made with another tokenizer than the corpus",
        fmt::format("tokenizer {} of {}", short_hash(corpus.info().tokenizer_hash), corpus.file().string()),
        "tokenizer " + short_hash(info.tokenizer_hash),
        "make the cache from this corpus, with a teacher that has the corpus's tokenizer");
  }
  if (const std::string hash = data::corpus_hash(corpus); info.corpus_hash != hash) {
    add("the teacher cache was made from another corpus",
        fmt::format("{} ({}, {} target tokens)", corpus.file().string(), short_hash(hash), corpus.info().target_tokens),
        fmt::format("{} ({}, {} positions)", named(info, "corpus"), short_hash(info.corpus_hash), info.positions),
        "set `corpus` of the teacher-logits stage to the training corpus");
  }
  if (teacher) {
    if (const std::string hash = model::model_hash(*teacher); info.teacher_hash != hash) {
      add("the teacher cache was made by another teacher", fmt::format("{} ({})", teacher->string(), short_hash(hash)),
          fmt::format("{} ({})", named(info, "teacher"), short_hash(info.teacher_hash)),
          "set `teacher` to the model of the teacher-logits stage, or omit it");
    }
  }
  problems.throw_if_any();
  return cache;
}

}  // namespace draftsmith::recipes
