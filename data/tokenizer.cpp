#include "data/tokenizer.h"

#include <algorithm>
#include <array>

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"

namespace draftsmith::data {

namespace {

constexpr std::array<const char*, 2> kFileNames = {"spiece.model", "tokenizer.model"};
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) : file_(file) {
    const std::string model = read_file(file, kMaxFileBytes);
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
  int32_t pad() const override { return processor_.pad_id(); }
  int32_t eos() const override { return processor_.eos_id(); }
  int32_t unk() const override { return processor_.unk_id(); }

  std::string piece(int32_t id) const override {
    check(id);
    return processor_.IdToPiece(id);
  }

  const std::string& hash() const override { return hash_; }
  const std::filesystem::path& file() const override { return file_; }

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

bool has_tokenizer(const std::filesystem::path& directory) {
  return std::any_of(kFileNames.begin(), kFileNames.end(),
                     [&](const char* name) { return std::filesystem::exists(directory / name); });
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory) {
  if (!std::filesystem::is_directory(file_or_directory)) {
    return std::make_unique<SentencePieceTokenizer>(file_or_directory);
  }
  for (const char* name : kFileNames) {
    const std::filesystem::path file = file_or_directory / name;
    if (std::filesystem::exists(file)) return std::make_unique<SentencePieceTokenizer>(file);
  }
  throw UserError({.where = file_or_directory.string(),
                   .what = "no tokenizer in this directory",
                   .expected = "spiece.model or tokenizer.model"});
}

}  // namespace draftsmith::data
