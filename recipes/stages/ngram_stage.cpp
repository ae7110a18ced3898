// kind = "ngram": counts the n-grams of a corpus's targets. Makes ngram.h5, the table of an n-gram drafter.

#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "data/ngrams/ngram_table.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct NgramStageOptions : data::NgramOptions {
  std::filesystem::path corpus;

  static Fields<NgramStageOptions> fields() {
    return Fields<NgramStageOptions>("ngram stage (kind = \"ngram\"): makes ngram.h5")
        .add("corpus", &NgramStageOptions::corpus, Required{}, "Corpus whose targets to count.")
        .inherit<data::NgramOptions>();
  }
};

// Starts from the beginning after an interruption, since counting takes seconds; removes files of a killed run.
void run_ngram(const NgramStageOptions& options, const StageContext& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run.directory)) {
    if (entry.path().filename().string().starts_with(".ngram.h5")) std::filesystem::remove_all(entry.path());
  }
  Progress progress({.style = run.execution.progress(),
                     .title = "counting",
                     .unit = "examples",
                     .total = data::read_corpus_info(options.corpus).examples});
  const auto report =
      data::build_ngram_table(options.corpus, options, run.directory / "ngram.h5", [&](int64_t examples) {
        progress.advance(examples);
        throw_if_stop_requested("run the recipe again to count from the beginning");
      });
  progress.finish();
  log_info("  {}", report.text());
}

}  // namespace

StageKind ngram_stage() {
  return make_stage_kind<NgramStageOptions>("ngram", 1, "counts n-grams, for a drafter without weights", run_ngram);
}

}  // namespace draftsmith::recipes
