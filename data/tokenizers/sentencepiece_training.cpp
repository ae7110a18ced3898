#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <sentencepiece_trainer.h>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "data/tokenizers/sentencepiece.h"

namespace draftsmith::data {
namespace {

constexpr std::string_view kReserved = "\xE2\x96\x85";  // U+2585: SentencePiece ignores lines with it

// SentencePiece's maximum. Its default would ignore lines above 4,192 bytes.
constexpr int64_t kMaxLineBytes = int64_t{1} << 30;

// Threads of training. The number is fixed for all machines, because sums depend on it.
constexpr int kThreads = 2;

class MemoryIterator : public sentencepiece::SentenceIterator {
 public:
  explicit MemoryIterator(const std::vector<std::string>& lines) : lines_(&lines) {}
  bool done() const override { return next_ == lines_->size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return (*lines_)[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>* lines_;
  size_t next_ = 0;
};

// Returns at most `options.max_lines` usable lines, at equal distances, in their order.
std::vector<std::string> sample_lines(const std::vector<std::string>& all, const TokenizerOptions& options,
                                      TokenizerTrainingReport& report) {
  std::vector<std::string> usable;
  report.lines = std::ssize(all);
  for (const std::string& line : all) {
    if (is_blank(line)) {
      ++report.unused["empty lines"];
    } else if (line.find(kReserved) != std::string::npos) {
      ++report.unused["lines with the reserved character U+2585"];
    } else {
      usable.push_back(line);
    }
  }
  if (std::ssize(usable) <= options.max_lines) return usable;
  report.unused["lines sampled out"] = std::ssize(usable) - options.max_lines;
  for (int64_t i = 0; i < options.max_lines; ++i) {
    const auto from = static_cast<size_t>(i * std::ssize(usable) / options.max_lines);
    if (from != static_cast<size_t>(i)) usable[static_cast<size_t>(i)] = std::move(usable[from]);
  }
  usable.resize(static_cast<size_t>(options.max_lines));
  return usable;
}

std::unordered_map<std::string, std::string> trainer_flags(const TokenizerOptions& options) {
  return {
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"hard_vocab_limit", options.exact_size ? "true" : "false"},
      {"character_coverage", std::to_string(options.character_coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"pad_id", "0"},
      {"eos_id", "1"},
      {"unk_id", "2"},
      {"bos_id", "-1"},
      {"num_threads", std::to_string(kThreads)},
      {"input_sentence_size", "0"},
      {"shuffle_input_sentence", "false"},
      {"max_sentence_length", std::to_string(kMaxLineBytes)},
      {"train_extremely_large_corpus", "false"},
      {"minloglevel", "4"},
  };
}

}  // namespace

Fields<TokenizerOptions> TokenizerOptions::fields() {
  return Fields<TokenizerOptions>("tokenizer options")
      .add("type", &TokenizerOptions::type, Choices{"unigram", "bpe"}, "Kind of SentencePiece model.")
      .add("vocabulary", &TokenizerOptions::vocabulary, Range{8, 1e6}, Unit{"pieces"},
           "Size of the vocabulary, with pad 0, eos 1 and unk 2.")
      .add("exact_size", &TokenizerOptions::exact_size,
           "Fail if the text has too few pieces. False: a unigram model may be smaller.")
      .add("character_coverage", &TokenizerOptions::character_coverage, Range{0.9, 1.0},
           "Share of the text's characters that become pieces; other characters are unk.")
      .add("byte_fallback", &TokenizerOptions::byte_fallback,
           "Write characters without a piece as bytes (256 pieces of the vocabulary) instead of unk.")
      .add("max_lines", &TokenizerOptions::max_lines, Range{1}, Unit{"lines"},
           "Maximum lines; of a longer text, train on every second line, every third and so on.");
}

TokenizerTrainingReport train_tokenizer(const std::vector<std::string>& all, const TokenizerOptions& options,
                                        const std::filesystem::path& file) {
  throw_problems_of(validate_options<TokenizerOptions>, options, "tokenizer");
  TokenizerTrainingReport report;
  const std::vector<std::string> lines = sample_lines(all, options, report);
  if (lines.empty()) {
    throw UserError({file.string(), "no text to train a tokenizer on", "",
                     std::to_string(report.lines) + " lines, all of them empty or unusable", ""});
  }
  // SentencePiece cannot be interrupted. The first character says whether the model or a message follows.
  const std::string trained = run_in_copy([&] {
    std::string model;
    MemoryIterator iterator(lines);
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_flags(options), &iterator, &model);
    return status.ok() ? "m" + model : "e" + std::string(status.message());
  });
  if (trained.front() == 'e') {
    throw UserError(
        {file.string(), "the tokenizer cannot be trained",
         "text that fits a " + options.type + " vocabulary of " + std::to_string(options.vocabulary) + " pieces",
         trained.substr(1), "change `vocabulary`, or set exact_size = false for a unigram model"});
  }
  write_file_atomic(file, trained.substr(1));
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(file);
  report.vocabulary = tokenizer->vocabulary();
  report.hash = tokenizer->hash();
  return report;
}

}  // namespace draftsmith::data
