// kind = "corpus": tokenises text into corpus.h5.
#include <fmt/format.h>

#include "base/logging.h"
#include "base/sha256.h"
#include "data/corpus/prepare.h"
#include "data/text/text_input.h"
#include "data/tokenizers/tokenizer.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct CorpusStageOptions : data::TextInput, data::TextPolicies, data::PrepareOptions {
  std::filesystem::path tokenizer;

  static Fields<CorpusStageOptions> fields() {
    return Fields<CorpusStageOptions>("corpus stage (kind = \"corpus\"): makes corpus.h5")
        .add("tokenizer", &CorpusStageOptions::tokenizer, Required{}, "Tokenizer file, or a directory with one.")
        .inherit<data::TextInput>()
        .inherit<data::TextPolicies>()
        .inherit<data::PrepareOptions>();
  }
};

void run_corpus(const CorpusStageOptions& options, const StageContext& run) {
  const auto tokenizer = data::load_tokenizer(options.tokenizer);
  const data::TextInput input = data::with_template_of(options.tokenizer, options);
  const auto stream = data::open_text(input, options);
  data::PrepareOptions prepare = options;
  prepare.prompts = prepare.prompts || !input.messages.empty();
  Progress progress({.style = run.execution.progress(), .title = "tokenizing", .unit = "examples"});
  const auto report = data::prepare_corpus(*stream, *tokenizer, prepare, run.directory / "corpus.h5",
                                           [&](int64_t examples) { progress.advance(examples); });
  progress.finish();
  log_info("  {} examples, {} source and {} target tokens", report.written, report.source_tokens, report.target_tokens);
  for (const auto& [name, count] : report.nonzero()) log_info("  {}: {}", name, count);
}

}  // namespace

StageKind corpus_stage() {
  return make_stage_kind<CorpusStageOptions>("corpus", 1, "tokenises parallel text, jsonl or plain text", run_corpus);
}

}  // namespace draftsmith::recipes
