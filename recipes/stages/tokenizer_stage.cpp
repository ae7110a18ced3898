// kind = "tokenizer": trains a SentencePiece model on text files. Makes spiece.model.
#include <fmt/format.h>

#include "base/logging.h"
#include "data/tokenizer_training.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct TokenizerStageOptions : data::TokenizerOptions {
  std::vector<std::string> input;

  static Fields<TokenizerStageOptions> fields() {
    return Fields<TokenizerStageOptions>("tokenizer stage (kind = \"tokenizer\"): makes spiece.model")
        .add("input", &TokenizerStageOptions::input, Required{}, "Text files to train on, one sentence a line.")
        .inherit<data::TokenizerOptions>();
  }
};

void run_tokenizer(const TokenizerStageOptions& options, const StageRun& run) {
  const std::vector<std::filesystem::path> files(options.input.begin(), options.input.end());
  const auto report = data::train_tokenizer(files, options, run.directory / "spiece.model");
  log_info("  {} pieces from {} lines ({} empty, {} with reserved characters, {} not sampled)", report.vocabulary,
           report.lines, report.empty, report.reserved, report.sampled_out);
}

}  // namespace

StageKind tokenizer_stage() {
  return make_stage_kind<TokenizerStageOptions>("tokenizer", 1, "trains a SentencePiece tokenizer on text files",
                                                run_tokenizer);
}

}  // namespace draftsmith::recipes
