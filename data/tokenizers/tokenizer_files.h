// Files of tokenizers: tokenizer.json, GPT-2's vocab.json with merges.txt, and the configuration beside them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "data/tokenizers/bpe.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Configuration beside a tokenizer's file, as Transformers reads it: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json.
struct TokenizerConfig {
  std::string tokenizer_class{};
  std::string any_class{};  // tokenizer_class, or else that of the model's config.json
  std::optional<bool> add_prefix_space{};
  std::optional<bool> add_bos_token{};
  std::optional<bool> add_eos_token{};
  std::optional<bool> legacy_behaviour{};  // NLLB's languages stand behind texts
  std::optional<int64_t> extra_ids{};      // sentinels that T5Tokenizer adds behind the pieces
  Languages languages{};                   // src_lang and tgt_lang
  // Contents of the special tokens; empty if the files name none.
  std::string bos{};
  std::string eos{};
  std::string unk{};
  std::string pad{};
  // Tokens of added_tokens_decoder or else of added_tokens.json, in order of their ids; then all other special tokens,
  // with id -1.
  std::vector<AddedToken> added{};
};

// Reads the files of a directory; missing files are ignored. Errors: UserError for malformed files.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory);

// Returns the language that a token names: eng_Latn and de_DE themselves, fr of __fr__, >>fr<< and <2fr>; or nothing.
std::string_view language_of(std::string_view token);

// Returns the texts of the directory's special tokens by their keys: bos_token, eos_token and others. Errors: as above.
std::map<std::string, std::string> special_token_texts(const std::filesystem::path& directory);

// Returns the ids that Transformers adds to a text with the SentencePiece model of a directory: LlamaTokenizer BOS,
// T5Tokenizer EOS, unless tokenizer_config.json says otherwise.
TextFrame sentencepiece_frame(const std::filesystem::path& directory, int32_t bos, int32_t eos);

// Returns the upper bound of the ids that Transformers knows with a SentencePiece model of `pieces` pieces: tokens that
// the directory's files add, and the sentinels of a T5Tokenizer, 100 unless extra_ids says otherwise. Without a
// tokenizer class, the model's config.json names the family.
int64_t sentencepiece_writable_ids(const std::filesystem::path& directory, int64_t pieces);

// Return what the files of a byte-level tokenizer say, of which make_bpe_tokenizer() makes a tokenizer. Encoding and
// decoding then equal Hugging Face `tokenizers` (0.23), without truncation and padding. Errors: UserError for a missing
// or malformed file, and for an unsupported component of tokenizer.json, with the list of supported ones.
BpeParts read_tokenizer_json(const std::filesystem::path& file);
// GPT-2's form (Radford et al. 2019), vocab.json and merges.txt: ids equal Transformers' GPT2Tokenizer's, or those of
// RobertaTokenizer for BART, whose vocabulary begins with <s>, <pad>, </s>.
BpeParts read_gpt2_files(const std::filesystem::path& vocabulary, const std::filesystem::path& merges);

// Bytes as ids from 3, between <pad>, </s>, <unk> and the sentinels <extra_id_0> and following: ids equal Transformers'
// ByT5Tokenizer's. `file` is the configuration that names this class.
BpeParts read_byt5(const std::filesystem::path& file);

// Returns whether the model of a tokenizer.json is byte pair encoding (a T5's is Unigram). Errors: UserError for a file
// that is not JSON.
bool is_bpe_json(const std::filesystem::path& file);

// Returns the pieces of a vocabulary, {"piece": id}. Errors: UserError for an id that is not from 0 to kMaxTokenId.
std::vector<std::pair<std::string, int32_t>> parse_vocabulary(const nlohmann::json& vocabulary,
                                                              const std::string& where);

// Returns the two pieces of a merge, which one blank separates. Errors: UserError.
std::pair<std::string, std::string> parse_merge(std::string_view line, const std::string& where);

}  // namespace draftsmith::data
