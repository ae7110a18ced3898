#include "data/tokenizers/gpt2_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_json.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxGpt2Bytes = 256'000'000;
const std::string kDefaultToken = "<|endoftext|>";  // GPT2Tokenizer's default for BOS, EOS and <unk>

std::vector<std::pair<std::string, std::string>> parse_merges(std::string_view text, const fs::path& file) {
  std::vector<std::pair<std::string, std::string>> merges;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.starts_with("#version")) continue;
    merges.push_back(parse_merge(line, fmt::format("{}:{}", file.string(), number)));
  }
  return merges;
}

// Marks tokens with a role as special, also those from added_tokens.json, which has no such flag.
void add_special(BpeParts& parts, const std::string& content) {
  for (AddedToken& token : parts.added) {
    if (token.content != content) continue;
    token.special = true;
    return;
  }
  parts.added.push_back({.content = content, .special = true});
}

}  // namespace

BpeParts read_gpt2_files(const fs::path& vocabulary, const fs::path& merges) {
  const std::string vocabulary_text = read_file(vocabulary, kMaxGpt2Bytes);
  const std::string merges_text = read_file(merges, kMaxGpt2Bytes);
  if (const auto bad = invalid_utf8_offset(merges_text)) {
    throw UserError({.where = merges.string(), .what = fmt::format("not valid UTF-8 at byte {}", *bad)});
  }
  BpeParts parts;
  parts.file = vocabulary;
  parts.files = with_configuration_files(vocabulary);
  parts.files.push_back(merges);
  Sha256 hash;
  for (const std::string& text : {vocabulary_text, merges_text}) {
    hash.update(fmt::format("{}\n", text.size()));
    hash.update(text);
  }
  parts.hash = hash.hex_digest();
  parts.model.pieces = parse_vocabulary(parse_json(vocabulary_text, vocabulary.string()), vocabulary.string());
  parts.model.merges = parse_merges(merges_text, merges);

  TokenizerConfig config = read_tokenizer_config(vocabulary.parent_path());
  parts.added = std::move(config.added);
  const auto or_default = [](const std::string& content) { return content.empty() ? kDefaultToken : content; };
  parts.bos = or_default(config.bos);
  parts.eos = or_default(config.eos);
  parts.unk = or_default(config.unk);
  parts.pad = config.pad;
  for (const std::string& content : {parts.bos, parts.eos, parts.unk, parts.pad}) {
    if (!content.empty()) add_special(parts, content);
  }
  if (config.add_prefix_space.value_or(false)) parts.pre_tokenizer.add(make_prefix_space());
  parts.pre_tokenizer.add(
      make_split(SplitPattern::regex(kGpt2Pattern, vocabulary.string()), SplitBehavior::kIsolated, false));
  parts.decoder.use_byte_level();
  parts.add_bos = config.add_bos_token.value_or(false);
  return parts;
}

std::unique_ptr<Tokenizer> load_gpt2_files(const fs::path& vocabulary, const fs::path& merges) {
  return make_bpe_tokenizer(read_gpt2_files(vocabulary, merges));
}

}  // namespace draftsmith::data
