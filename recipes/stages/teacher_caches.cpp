#include "recipes/stages/teacher_caches.h"

#include <fmt/format.h>

#include "base/error.h"
#include "model/files/model_hash.h"

namespace draftsmith::recipes {

namespace {

std::string named(const data::TeacherCacheInfo& info, const char* key) {
  const auto found = info.provenance.find(key);
  return found == info.provenance.end() ? "one that the cache does not name" : found->second;
}

std::string short_hash(const std::string& hash) {
  return hash.substr(0, 16);
}

// Compares the content with the corpus: a damaged file may have the corpus's attributes.
void check_counts(const data::TeacherCache& cache, const data::Corpus& corpus, Problems& problems) {
  const auto add = [&](const char* what, const std::string& expected, const std::string& found) {
    problems.add({.where = cache.file().string(),
                  .what = what,
                  .expected = expected + " of " + corpus.file().string(),
                  .found = found,
                  .hint = "the cache is damaged; make it again"});
  };
  if (cache.info().examples != corpus.size()) {
    return add("the teacher cache has another number of examples than the corpus",
               fmt::format("the {} examples", corpus.size()), std::to_string(cache.info().examples));
  }
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const auto tokens = static_cast<int64_t>(corpus.target(i).size());
    if (cache.positions(i) == tokens) continue;
    return add("an example of the teacher cache has another length than in the corpus",
               fmt::format("the {} target tokens of example {}", tokens, i), std::to_string(cache.positions(i)));
  }
}

}  // namespace

data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher) {
  data::TeacherCache cache(file);
  const data::TeacherCacheInfo& info = cache.info();
  Problems problems;
  if (info.tokenizer_hash != corpus.info().tokenizer_hash) {
    problems.add({.where = file.string(),
                  .what = "the teacher cache was made with another tokenizer than the corpus",
                  .expected = fmt::format("tokenizer {} of {}", short_hash(corpus.info().tokenizer_hash),
                                          corpus.file().string()),
                  .found = "tokenizer " + short_hash(info.tokenizer_hash),
                  .hint = "make the cache from this corpus, with a teacher that has the corpus's tokenizer"});
  }
  if (const std::string hash = data::corpus_hash(corpus); info.corpus_hash != hash) {
    problems.add({.where = file.string(),
                  .what = "the teacher cache was made from another corpus",
                  .expected = fmt::format("{} ({}, {} target tokens)", corpus.file().string(), short_hash(hash),
                                          corpus.info().target_tokens),
                  .found = fmt::format("{} ({}, {} positions)", named(info, "corpus"), short_hash(info.corpus_hash),
                                       info.positions),
                  .hint = "set `corpus` of the teacher-logits stage to the training corpus"});
  } else {
    check_counts(cache, corpus, problems);
  }
  if (teacher) {
    if (const std::string hash = model::model_hash(*teacher); info.teacher_hash != hash) {
      problems.add({.where = file.string(),
                    .what = "the teacher cache was made by another teacher",
                    .expected = fmt::format("{} ({})", teacher->string(), short_hash(hash)),
                    .found = fmt::format("{} ({})", named(info, "teacher"), short_hash(info.teacher_hash)),
                    .hint = "set `teacher` to the model of the teacher-logits stage, or omit it"});
    }
  }
  problems.throw_if_any();
  return cache;
}

}  // namespace draftsmith::recipes
