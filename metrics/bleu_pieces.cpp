#include "metrics/bleu_pieces.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "metrics/python_text.h"

namespace draftsmith::metrics {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;

fs::path folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// Returns the bytes of the model `file` among sacreBLEU's. Errors: UserError.
std::string read_model(const std::string& tokenizer, const fs::path& file) {
  std::error_code none;
  if (fs::exists(file, none)) return read_file(file, kMaxBytes);
  throw UserError({.where = "BLEU tokenizer " + tokenizer,
                   .what = "its SentencePiece model is missing",
                   .expected = file.string() + ", where sacreBLEU keeps it",
                   .found = "no such file",
                   .hint = "sacreBLEU downloads it when it first scores with --tokenize " + tokenizer +
                           "; SACREBLEU names another folder than ~/.sacrebleu"});
}

class PieceTokenizer : public BleuTokenizer {
 public:
  PieceTokenizer(std::string name, const char* model_name) : name_(std::move(name)) {
    const fs::path file = sacrebleu_models() / model_name;
    const std::string model = read_model(name_, file);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!model.empty() && status.ok() && processor_.GetPieceSize() > 0) return;
    throw UserError({.where = file.string(),
                     .what = "not a SentencePiece model",
                     .expected = "the model of the BLEU tokenizer " + name_,
                     .found = model.empty() ? "an empty file" : status.ToString(),
                     .hint = "delete the file, and let sacreBLEU download it again"});
  }

  std::vector<std::string> tokens(std::string_view text) const override {
    const std::string_view segment = right_stripped(text);
    std::vector<std::string> pieces;
    const auto status = processor_.Encode({segment.data(), segment.size()}, &pieces);
    if (!status.ok()) throw RunError({.where = "BLEU tokenizer " + name_, .what = status.ToString()});
    std::string joined;  // sacreBLEU joins pieces and splits them again, at white space inside of pieces, too
    for (const std::string& piece : pieces) joined += piece + " ";
    return words_of(joined);
  }
  std::string signature() const override { return name_; }

 private:
  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

fs::path sacrebleu_models() {
  const fs::path given = folder_of("SACREBLEU");
  return (given.empty() ? folder_of("HOME") / ".sacrebleu" : given) / "models";
}

std::unique_ptr<const BleuTokenizer> make_flores101_tokenizer() {
  return std::make_unique<PieceTokenizer>("flores101", "sacrebleu_tokenizer_spm.model");
}

std::unique_ptr<const BleuTokenizer> make_flores200_tokenizer() {
  return std::make_unique<PieceTokenizer>("flores200", "flores200sacrebleuspm");
}

std::unique_ptr<const BleuTokenizer> make_spbleu_1k_tokenizer() {
  return std::make_unique<PieceTokenizer>("spBLEU-1K", "spbleu-1k_tokenizer_spm.model");
}

}  // namespace draftsmith::metrics
