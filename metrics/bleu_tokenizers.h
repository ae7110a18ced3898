// BLEU's tokenizers: their interface, and the list of them by name, as sacreBLEU 2.6 names them. A new one is a line of
// the list in bleu_tokenizers.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::metrics {

// Splits segments into the tokens that BLEU counts.
class BleuTokenizer {
 public:
  virtual ~BleuTokenizer() = default;
  // Returns the tokens of one segment. May be called by several threads at once.
  virtual std::vector<std::string> tokens(std::string_view text) const = 0;
  // Returns the tokenizer's name in signatures, as sacreBLEU writes it: "13a".
  virtual std::string signature() const = 0;
};

// Returns all names: "13a", "none", "char", "intl" and "zh".
std::vector<std::string> bleu_tokenizer_names();

// Returns the tokenizer of that name. Errors: UserError for an unknown name.
std::unique_ptr<const BleuTokenizer> make_bleu_tokenizer(const std::string& name);

// Returns the name of the tokenizer for texts in a language: zh for "zh", char for "ja", whose words no blanks
// separate, else 13a, also for an unknown language, "".
std::string default_bleu_tokenizer(const std::string& language);

// Returns the language that a file of references is named for, or "": "zh" of "test.zh" and of sacreBLEU's
// "wmt20.en-zh.ref" and "wmt20.en-zh.ref-A".
std::string language_of_references(const std::filesystem::path& file);

}  // namespace draftsmith::metrics
