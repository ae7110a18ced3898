// kind = "tokenizer": trains a SentencePiece model on text or jsonl files. Makes spiece.model.
#include <iterator>
#include <sstream>

#include "base/logging.h"
#include "data/text/readers.h"
#include "data/tokenizers/sentencepiece.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct TokenizerStageOptions : data::TokenizerOptions {
  std::vector<std::filesystem::path> input;
  std::vector<std::filesystem::path> jsonl;
  std::vector<std::string> fields_of_jsonl;

  static Fields<TokenizerStageOptions> fields() {
    return Fields<TokenizerStageOptions>("tokenizer stage (kind = \"tokenizer\"): makes spiece.model")
        .add("input", &TokenizerStageOptions::input, "Text files to train on, one sentence a line.")
        .add("jsonl", &TokenizerStageOptions::jsonl, "jsonl files to train on, in addition to or in place of `input`.")
        .add("fields", &TokenizerStageOptions::fields_of_jsonl, "Fields of the jsonl objects that contain text.")
        .inherit<data::TokenizerOptions>()
        .check([](const TokenizerStageOptions& options, const std::string& where, Problems& problems) {
          if (options.input.empty() && options.jsonl.empty()) {
            problems.add(
                {.where = where, .what = "no text to train on", .expected = "`input`, or `jsonl` and `fields`"});
          }
          if (!options.jsonl.empty() && options.fields_of_jsonl.empty()) {
            problems.add(
                {.where = where, .what = "jsonl without the names of its text fields", .expected = "`fields`"});
          }
        });
  }
};

void add_lines(const std::string& text, std::vector<std::string>& lines) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
}

std::vector<std::string> all_lines(const TokenizerStageOptions& options) {
  std::vector<std::string> lines;
  for (const auto& file : options.input) {
    auto read = data::read_lines(file);
    lines.insert(lines.end(), std::make_move_iterator(read.begin()), std::make_move_iterator(read.end()));
  }
  for (const auto& file : options.jsonl) {
    const data::JsonFields fields{.source = "", .targets = options.fields_of_jsonl, .separator = "\n"};
    const auto stream = data::open_jsonl(file, fields, {.empty = "keep"});
    for (data::Example example; stream->next(example);) {
      for (const std::string& text : example.targets) add_lines(text, lines);
    }
  }
  return lines;
}

void run_tokenizer(const TokenizerStageOptions& options, const StageContext& run) {
  const auto report = data::train_tokenizer(all_lines(options), options, run.directory / "spiece.model");
  log_info("  {} pieces from {} lines ({} empty, {} with reserved characters, {} not sampled)", report.vocabulary,
           report.lines, report.empty, report.reserved, report.sampled_out);
}

}  // namespace

StageKind tokenizer_stage() {
  return make_stage_kind<TokenizerStageOptions>("tokenizer", 1, "trains a SentencePiece tokenizer on text files",
                                                run_tokenizer);
}

}  // namespace draftsmith::recipes
