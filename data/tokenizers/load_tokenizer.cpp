#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/util.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {

size_t Tokenizer::checked(int32_t id) const {
  if (id >= 0 && id < vocabulary()) return static_cast<size_t>(id);
  throw UserError({file_.string(), "token id outside the vocabulary", fmt::format("0 to {}", vocabulary() - 1),
                   fmt::format("{}", id), ""});
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kVocabulary = "vocab.json";
constexpr const char* kMerges = "merges.txt";
constexpr const char* kConfiguration = "tokenizer_config.json";

fs::path sentencepiece_file(const fs::path& directory) {
  for (const char* name : {"spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "source.spm"}) {
    if (fs::exists(directory / name)) return directory / name;
  }
  return {};
}

bool has_gpt2_files(const fs::path& directory) {
  return fs::exists(directory / kVocabulary) && fs::exists(directory / kMerges);
}

// Returns whether tokens were added to a T5's pieces, beside its sentinels: texts have them, SentencePiece's file not.
bool adds_tokens(const fs::path& directory) {
  constexpr int32_t kFirst = 256;  // ids before it are pieces of every model
  const TokenizerConfig config = read_tokenizer_config(directory);
  return config.any_class.starts_with("T5") && std::ranges::any_of(config.added, [](const AddedToken& token) {
           return token.id >= kFirst && !token.content.starts_with("<extra_id_");
         });
}

// Returns the configuration that names ByT5's class, which has no file of its own; or nothing.
fs::path byt5_file(const fs::path& directory) {
  if (!read_tokenizer_config(directory).any_class.starts_with("ByT5")) return {};
  return directory / (fs::exists(directory / kConfiguration) ? kConfiguration : "config.json");
}

std::unique_ptr<Tokenizer> load_file(const fs::path& file) {
  const fs::path name = file.filename();
  if ((name == kConfiguration || name == "config.json") && file == byt5_file(file.parent_path())) {
    return make_bpe_tokenizer(read_byt5(file));
  }
  if (file.filename() == kVocabulary || file.filename() == kMerges) {
    return make_bpe_tokenizer(read_gpt2_files(file.parent_path() / kVocabulary, file.parent_path() / kMerges));
  }
  if (file.extension() == ".json") return make_bpe_tokenizer(read_tokenizer_json(file));
  if (adds_tokens(file.parent_path())) {
    log_warning("{}: tokens that were added to it are not found in texts; tokenizer.json has them", file.string());
  }
  return load_sentencepiece(file);
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return !sentencepiece_file(directory).empty() || fs::exists(directory / kJson) || has_gpt2_files(directory) ||
         !byt5_file(directory).empty();
}

fs::path tokenizer_file(const fs::path& directory) {
  const bool has_json = fs::exists(directory / kJson);
  const fs::path model = sentencepiece_file(directory);
  if (!model.empty()) {
    const bool other_files = has_json || has_gpt2_files(directory);
    const bool json_first = has_json && (is_bpe_json(directory / kJson) || adds_tokens(directory));
    if (!json_first && (!other_files || is_sentencepiece(model))) return model;
  }
  if (has_json) return directory / kJson;
  return has_gpt2_files(directory) ? directory / kVocabulary : byt5_file(directory);
}

namespace {

std::unique_ptr<Tokenizer> load_directory(const fs::path& directory) {
  if (const fs::path file = tokenizer_file(directory); !file.empty()) return load_file(file);
  throw UserError({.where = directory.string(),
                   .what = "no tokenizer in this directory",
                   .expected =
                       "tokenizer.json, spiece.model, tokenizer.model, sentencepiece.bpe.model, source.spm with "
                       "target.spm, or vocab.json with merges.txt",
                   .hint = "a ByT5 has none: let tokenizer_config.json say \"tokenizer_class\": \"ByT5Tokenizer\""});
}

// The tokens of languages. Those before a source name its language (eng_Latn, __fr__); others name the target's, also
// before a source (>>fra<<, <2fr>), and no token begins a target.
struct LanguageTokens {
  std::map<std::string, int32_t> ids{};  // by language
  bool target_alone = false;
};

LanguageTokens language_tokens(const Tokenizer& tokenizer) {
  LanguageTokens tokens;
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const std::string piece = tokenizer.piece(id);
    const std::string_view language = language_of(piece);
    const bool target_alone = piece.starts_with('>') || piece.starts_with('<');
    if (language.empty() || (!target_alone && tokenizer.text_piece(id).kind != TextPiece::Kind::kNothing)) continue;
    tokens.ids.emplace(language, id);
    tokens.target_alone = target_alone;
  }
  return tokens;
}

// Returns the id of a language that the option or key names. Errors: UserError with the nearest and some others.
int32_t language_id(const LanguageTokens& tokens, const std::string& language, const char* side,
                    const fs::path& where) {
  if (const auto found = tokens.ids.find(language); found != tokens.ids.end()) return found->second;
  constexpr size_t kShown = 12;
  std::vector<std::string> known = from_each(tokens.ids, [](const auto& entry) { return entry.first; });
  const std::string near = nearest(language, known);
  const size_t count = known.size();
  known.resize(std::min(count, kShown));
  throw UserError({where.string(), fmt::format("the tokenizer has no such {} language", side),
                   count == 0 ? "a tokenizer with language tokens"
                              : fmt::format("one of its {} languages: {}{}", count, fmt::join(known, ", "),
                                            count > kShown ? ", ..." : ""),
                   language, near.empty() ? "" : "did you mean " + near + "?"});
}

// Returns frames with the target's language before sources, if there is one.
LanguageFrames target_alone_frames(const Tokenizer& tokenizer, const LanguageTokens& tokens, const Languages& asked,
                                   const std::string& target) {
  LanguageFrames frames{.source = tokenizer.frame(), .target = tokenizer.frame(), .forced_bos = std::nullopt};
  if (!asked.source_language.empty()) {
    throw UserError({tokenizer.file().string(), "the tokenizer has tokens of target languages alone",
                     "no source language", asked.source_language, ""});
  }
  if (target.empty()) return frames;
  frames.source.before.insert(frames.source.before.begin(), language_id(tokens, target, "target", tokenizer.file()));
  return frames;
}

// Returns frames with each text's language before it. Without a source language it is English; without a target
// language targets have the source's, as in Transformers.
LanguageFrames paired_frames(const Tokenizer& tokenizer, const LanguageTokens& tokens, std::string source,
                             const std::string& target) {
  for (const char* usual : {"eng_Latn", "en_XX", "en"}) {
    if (source.empty() && tokens.ids.contains(usual)) source = usual;
  }
  TextFrame plain = tokenizer.frame();
  const auto is_language = [&](int32_t id) {
    return std::ranges::any_of(tokens.ids, [&](const auto& entry) { return entry.second == id; });
  };
  // A tokenizer.json has the language that it was saved with in its frame.
  std::erase_if(plain.before, is_language);
  std::erase_if(plain.after, is_language);
  LanguageFrames frames{.source = plain, .target = plain, .forced_bos = std::nullopt};
  if (!source.empty()) {
    const int32_t id = language_id(tokens, source, "source", tokenizer.file());
    frames.source.before.insert(frames.source.before.begin(), id);
  }
  if (target.empty()) {
    frames.target = frames.source;
  } else {
    frames.forced_bos = language_id(tokens, target, "target", tokenizer.file());
    frames.target.before.insert(frames.target.before.begin(), *frames.forced_bos);
  }
  return frames;
}

// Sets the ids around sources and targets by languages: those asked for, or else the tokenizer's own. Errors: UserError
// for tokenizers that put them behind the text.
void choose_languages(Tokenizer& tokenizer, const Languages& asked) {
  const TokenizerConfig config = read_tokenizer_config(tokenizer.file().parent_path());
  const auto is_class = [&](std::string_view name) { return config.any_class.find(name) != std::string::npos; };
  const bool legacy = is_class("Nllb") && config.legacy_behaviour.value_or(false);
  if (legacy || config.any_class.starts_with("MBartTokenizer")) {
    throw UserError({tokenizer.file().string(), "a tokenizer whose languages stand behind the text is not supported",
                     "an mBART-50, or an NLLB without legacy_behaviour: their languages stand before it",
                     config.any_class + (legacy ? " with \"legacy_behaviour\": true" : ""), ""});
  }
  const bool given = !asked.source_language.empty() || !asked.target_language.empty();
  const bool translates = is_class("Nllb") || is_class("MBart50") || is_class("M2M100") ||
                          tokenizer.file().filename() == "sentencepiece.bpe.model";
  if (!given && !translates) return;
  const LanguageTokens tokens = language_tokens(tokenizer);
  if (tokens.ids.empty() && !given) return;
  const auto named = [](const std::string& one, const std::string& other) { return one.empty() ? other : one; };
  const std::string source = named(asked.source_language, config.languages.source_language);
  const std::string target = named(asked.target_language, config.languages.target_language);
  tokenizer.set_frames(tokens.target_alone ? target_alone_frames(tokenizer, tokens, asked, target)
                                           : paired_frames(tokenizer, tokens, source, target));
}

}  // namespace

Fields<Languages> Languages::fields() {
  return Fields<Languages>("languages of a translation model's text (NLLB, M2M-100, mBART-50, Marian, MADLAD)")
      .add("source_language", &Languages::source_language,
           "Language of sources, as the tokenizer names it, such as eng_Latn, en_XX or en; empty: src_lang of "
           "tokenizer_config.json, or English.")
      .add("target_language", &Languages::target_language,
           "Language of targets, which decoding then begins with; empty: tgt_lang of tokenizer_config.json, or none.");
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& file_or_directory, const Languages& languages) {
  auto tokenizer =
      fs::is_directory(file_or_directory) ? load_directory(file_or_directory) : load_file(file_or_directory);
  choose_languages(*tokenizer, languages);
  return tokenizer;
}

std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint) {
  constexpr size_t kShown = 60;
  std::vector<int64_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const int64_t id = parse_whole<int64_t>(word).value_or(-1);
    if (id < 0 || id >= vocabulary) {
      throw UserError({where, "not a token id", "ids in 0.." + std::to_string(vocabulary - 1) + ", separated by blanks",
                       word.substr(0, kShown), hint});
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace draftsmith::data
