#include "data/tokenizers/sentencepiece.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "data/text/readers.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {

namespace {

constexpr uint64_t kMaxModelBytes = uint64_t{256} << 20;
constexpr const char* kSpaceSymbol = "\xE2\x96\x81";  // U+2581

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) : file_(file) {
    const std::string model = read_file(file, kMaxModelBytes);
    const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(model);
    if (model.empty() || !status.ok() || processor_.GetPieceSize() == 0) {
      throw UserError({.where = file.string(),
                       .what = "not a SentencePiece model",
                       .expected = "a file such as spiece.model or tokenizer.model",
                       .found = model.empty() ? "an empty file" : status.ToString()});
    }
    hash_ = sha256(model);
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const sentencepiece::util::Status status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw RunError({.where = file_.string(), .what = "encoding failed: " + status.ToString()});
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) check(id);
    std::string text;
    const sentencepiece::util::Status status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw RunError({.where = file_.string(), .what = "decoding failed: " + status.ToString()});
    return text;
  }

  int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  int64_t writable_ids() const override { return sentencepiece_writable_ids(file_.parent_path(), vocabulary()); }
  int32_t pad() const override { return processor_.pad_id(); }
  int32_t eos() const override { return processor_.eos_id(); }
  int32_t unk() const override { return processor_.unk_id(); }
  int32_t bos() const override { return processor_.bos_id(); }

  std::string piece(int32_t id) const override {
    check(id);
    return processor_.IdToPiece(id);
  }

  const std::string& hash() const override { return hash_; }
  const std::filesystem::path& file() const override { return file_; }
  std::vector<std::filesystem::path> files() const override { return with_configuration_files(file_); }

  TextFrame frame() const override {
    return sentencepiece_frame(file_.parent_path(), processor_.bos_id(), processor_.eos_id());
  }

  TextPiece text_piece(int32_t id) const override {
    check(id);
    if (processor_.IsControl(id)) return {TextPiece::Kind::kText, ""};
    if (processor_.IsUnknown(id)) return {TextPiece::Kind::kText, decode({&id, 1})};
    const std::string piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      return {TextPiece::Kind::kBytes, std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)))};
    }
    return {TextPiece::Kind::kText, replace_all(piece, kSpaceSymbol, " ")};
  }

  StreamRules stream_rules() const override {
    return {.invalid = InvalidBytes::kReplaceEach, .drops_leading_space = true};
  }

 private:
  void check(int32_t id) const {
    if (id >= 0 && id < vocabulary()) return;
    throw UserError({.where = file_.string(),
                     .what = "token id outside the vocabulary",
                     .expected = "0 to " + std::to_string(vocabulary() - 1),
                     .found = std::to_string(id)});
  }

  std::filesystem::path file_;
  std::string hash_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePieceTokenizer>(file);
}

bool is_sentencepiece(const std::filesystem::path& file) {
  try {
    load_sentencepiece(file);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

namespace {

// A field of a Protocol Buffers message: its number, and its content as bytes or as an integer.
struct MessageField {
  uint64_t number = 0;
  std::string_view bytes{};
  uint64_t integer = 0;
};

// Calls visit(field) for every field of a serialised message. Returns false if the bytes are no message.
template <class Visit>
bool read_message(std::string_view bytes, const Visit& visit) {
  size_t at = 0;
  bool sound = true;
  const auto variable_integer = [&]() -> uint64_t {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    sound = false;
    return 0;
  };
  const auto take = [&](uint64_t count) {
    sound = sound && count <= bytes.size() - at;
    const std::string_view taken = sound ? bytes.substr(at, count) : std::string_view();
    at += taken.size();
    return taken;
  };
  while (sound && at < bytes.size()) {
    const uint64_t tag = variable_integer();
    MessageField field{.number = tag >> 3};
    switch (tag & 7) {
      case 0:
        field.integer = variable_integer();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(variable_integer());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        sound = false;
    }
    if (sound) visit(field);
  }
  return sound;
}

}  // namespace

SentencePieceContents read_sentencepiece(const std::filesystem::path& file) {
  const std::string model = read_file(file, kMaxModelBytes);
  SentencePieceContents contents;
  bool read = true;
  const auto read_piece = [&](const MessageField& field) {
    SentencePieceContents::Piece& piece = contents.pieces.back();
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == 4) std::memcpy(&piece.score, field.bytes.data(), 4);
    if (field.number == 3) piece.type = static_cast<int32_t>(field.integer);
  };
  const auto read_training = [&](const MessageField& field) {
    if (field.number == 3) contents.kind = static_cast<SentencePieceContents::Kind>(field.integer);
  };
  const auto read_normalizer = [&](const MessageField& field) {
    if (field.number == 2) contents.character_map = field.bytes;
    if (field.number == 3) contents.adds_space = field.integer != 0;
    if (field.number == 4) contents.joins_spaces = field.integer != 0;
  };
  read &= read_message(model, [&](const MessageField& field) {
    if (field.number == 1) contents.pieces.emplace_back();
    if (field.number == 1) read &= read_message(field.bytes, read_piece);
    if (field.number == 2) read &= read_message(field.bytes, read_training);
    if (field.number == 3) read &= read_message(field.bytes, read_normalizer);
  });
  if (read && !contents.pieces.empty()) return contents;
  throw UserError({.where = file.string(),
                   .what = "not a SentencePiece model",
                   .expected = "a file such as spiece.model or tokenizer.model",
                   .found = contents.pieces.empty() ? "no pieces" : "damaged bytes"});
}

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
    usable[static_cast<size_t>(i)] = std::move(usable[from]);
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
  Problems problems;
  validate_options(options, "tokenizer", problems);
  problems.throw_if_any();
  TokenizerTrainingReport report;
  const std::vector<std::string> lines = sample_lines(all, options, report);
  if (lines.empty()) {
    throw UserError({.where = file.string(),
                     .what = "no text to train a tokenizer on",
                     .found = std::to_string(report.lines) + " lines, all of them empty or unusable"});
  }
  // SentencePiece cannot be interrupted. The first character says whether the model or a message follows.
  const std::string trained = run_in_copy([&] {
    std::string model;
    MemoryIterator iterator(lines);
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_flags(options), &iterator, &model);
    return status.ok() ? "m" + model : "e" + std::string(status.message());
  });
  if (trained.front() == 'e') {
    throw UserError({.where = file.string(),
                     .what = "the tokenizer cannot be trained",
                     .expected = "text that fits a " + options.type + " vocabulary of " +
                                 std::to_string(options.vocabulary) + " pieces",
                     .found = trained.substr(1),
                     .hint = "change `vocabulary`, or set exact_size = false for a unigram model"});
  }
  write_file_atomic(file, trained.substr(1));
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(file);
  report.vocabulary = tokenizer->vocabulary();
  report.hash = tokenizer->hash();
  return report;
}

}  // namespace draftsmith::data
