// Interface of tokenizers: SentencePiece models, and byte pair encoding as Hugging Face `tokenizers` stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace draftsmith {
template <class T>
class Fields;  // base/options.h
}

namespace draftsmith::data {

// The contribution of one id to a text: nothing (special tokens), text, or bytes that form characters together with
// neighbouring bytes. SentencePiece's control ids are empty text, which ends a run of bytes.
struct TextPiece {
  enum class Kind { kNothing, kText, kBytes };
  Kind kind = Kind::kText;
  std::string text{};
};

// The treatment of invalid UTF-8 in decode: one U+FFFD for each maximal ill-formed part (Rust's from_utf8_lossy), for
// each ill-formed byte (SentencePiece), or for each byte of a run that has an ill-formed byte (ByteFallback); or
// nothing for ill-formed bytes (ByT5).
enum class InvalidBytes { kReplaceParts, kReplaceEach, kReplaceRun, kDrop };

// Rules for decoding streams, besides TextPiece (StreamDecoder).
struct StreamRules {
  InvalidBytes invalid = InvalidBytes::kReplaceParts;
  bool drops_leading_space = false;  // decode drops a space at the start of a text
};

// Ids that Transformers adds before and after a single text (BOS of a Llama, EOS of a T5).
struct TextFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// Languages of a translation model, as its tokenizer names them: eng_Latn, de_DE, fr, fra. Empty: those of src_lang and
// tgt_lang in tokenizer_config.json, or else the family's usual source and no target.
struct Languages {
  std::string source_language{};
  std::string target_language{};
  static Fields<Languages> fields();
};

// Choices that the languages of an encoder-decoder's text decide: the ids around sources and targets, and the first id
// that the model writes, if it is forced.
struct LanguageFrames {
  TextFrame source{};
  TextFrame target{};
  std::optional<int32_t> forced_bos{};
};

// A tokenizer. Several threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Returns the ids of a text, without BOS and EOS. The text must be valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Returns the ids of a text as an encoder-decoder's target: Marian has a SentencePiece model of its own for these.
  virtual std::vector<int32_t> encode_target(std::string_view text) const { return encode(text); }
  // Returns the text of ids. Control ids (pad, EOS) give no text. Errors: UserError for ids outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Returns the upper bound of ids. Some ids may have no piece.
  virtual int64_t vocabulary() const = 0;
  // Returns the upper bound of ids that a model of this tokenizer may write. Beyond vocabulary() these are added tokens
  // that have no piece, such as T5's sentinels <extra_id_0>; they give no text.
  virtual int64_t writable_ids() const { return vocabulary(); }
  // Returns the upper bound of the ids that ordinary text is cut into. From there on are tokens that were added.
  virtual int64_t text_ids() const { return vocabulary(); }
  // Special ids; -1 if the tokenizer has no such id (Llama has no pad).
  int32_t pad() const { return special_ids_.pad; }
  int32_t eos() const { return special_ids_.eos; }
  int32_t unk() const { return special_ids_.unk; }
  int32_t bos() const { return special_ids_.bos; }
  virtual std::string piece(int32_t id) const = 0;
  // Returns the SHA-256 of all that defines the tokenizer, which is recorded in all files made with it.
  const std::string& hash() const { return hash_; }
  // Returns the file that was loaded (spiece.model, tokenizer.json, vocab.json).
  const std::filesystem::path& file() const { return file_; }
  // Returns the ids around prompts, and those around both texts of an encoder-decoder without languages.
  virtual TextFrame frame() const { return {}; }
  // Returns the same for sources and targets of an encoder-decoder, with language tokens.
  LanguageFrames frames() const { return languages_.value_or(LanguageFrames{frame(), frame(), std::nullopt}); }
  void set_frames(LanguageFrames frames) { languages_ = std::move(frames); }

  // Rules for StreamDecoder. By default the text of an id is the result of decoding it alone.
  virtual TextPiece text_piece(int32_t id) const { return {TextPiece::Kind::kText, decode({&id, 1})}; }
  virtual StreamRules stream_rules() const { return {}; }

 protected:
  struct SpecialIds {
    int32_t pad = -1;
    int32_t eos = -1;
    int32_t unk = -1;
    int32_t bos = -1;
  };

  // Returns an id as an index. Errors: UserError for an id outside the vocabulary.
  size_t checked(int32_t id) const;

  std::filesystem::path file_{};
  std::string hash_{};
  SpecialIds special_ids_{};

 private:
  std::optional<LanguageFrames> languages_{};
};

// Decodes a stream of ids, one id at a time, to text that never ends inside a character. The concatenated texts equal
// Tokenizer::decode of all ids.
class StreamDecoder {
 public:
  // The tokenizer must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), rules_(tokenizer.stream_rules()) {}

  // Adds an id and returns the text that is complete now: valid UTF-8, empty while bytes of a character are missing.
  // Errors: UserError for an id outside the vocabulary.
  std::string push(int32_t id);
  // Ends the text: returns its rest, with U+FFFD for bytes of an incomplete character. The next id begins a new text.
  std::string flush();
  // Returns text that a later id may still change into U+FFFD, which is valid so far.
  std::string held() const;

 private:
  std::string push_first(int32_t id, const TextPiece& piece);
  std::string take_ready();
  std::string drain();

  const Tokenizer& tokenizer_;
  StreamRules rules_;
  bool at_start_ = true;            // no text returned yet
  std::vector<int32_t> first_ids_;  // ids since the start, if a leading space is dropped
  std::string bytes_;               // bytes of the current run that were not returned yet
};

// Returns whether a model directory has files that load_tokenizer would load.
bool has_tokenizer(const std::filesystem::path& directory);

// Returns the file that load_tokenizer() reads for a directory; empty: none. Errors: UserError for files that decide it
// and cannot be read.
std::filesystem::path tokenizer_file(const std::filesystem::path& directory);

// Loads a tokenizer from its file or from a model directory, of which it takes, in this order:
// 1. tokenizer.json if its model is BPE, as in Transformers;
// 2. a SentencePiece model: spiece.model or tokenizer.model (T5, Llama, Pegasus), sentencepiece.bpe.model (M2M-100 with
//    vocab.json; NLLB, mBART-50), source.spm beside target.spm and vocab.json (Marian). So also beside a tokenizer.json
//    of another type (T5's is a copy of its SentencePiece model). A tokenizer.model that is not SentencePiece's (Llama
//    3's is tiktoken's) is ignored beside other files;
// 3. tokenizer.json of type Unigram;
// 4. vocab.json with merges.txt (GPT-2's and BART's own form);
// 5. tokenizer_config.json, or config.json, of the class ByT5Tokenizer, which has no file.
// The two files of a Llama, tokenizer.model and tokenizer.json, give the same ids.
// Errors: UserError for a missing or malformed file, an unsupported component of tokenizer.json, and languages that the
// tokenizer has no tokens for, with the nearest and some others.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory,
                                          const Languages& languages = {});

// Returns the ids of a line, all in [0, vocabulary). Errors: UserError with `where` and `hint` for a word that is not
// such an id.
std::vector<int64_t> parse_token_ids(const std::string& line, int64_t vocabulary, const std::string& where,
                                     const std::string& hint);

}  // namespace draftsmith::data
