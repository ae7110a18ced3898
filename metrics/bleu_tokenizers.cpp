#include "metrics/bleu_tokenizers.h"

#include "base/registry.h"
#include "metrics/bleu_rules.h"

namespace draftsmith::metrics {
namespace {

struct Entry {
  std::string name;
  std::unique_ptr<const BleuTokenizer> (*make)();
};

const Registry<Entry>& tokenizers() {
  static const Registry<Entry> kTokenizers("BLEU tokenizer", {{"13a", make_13a_tokenizer},
                                                              {"none", make_white_space_tokenizer},
                                                              {"char", make_character_tokenizer},
                                                              {"intl", make_international_tokenizer},
                                                              {"zh", make_chinese_tokenizer}});
  return kTokenizers;
}

}  // namespace

std::vector<std::string> bleu_tokenizer_names() {
  return tokenizers().names();
}

std::unique_ptr<const BleuTokenizer> make_bleu_tokenizer(const std::string& name) {
  return tokenizers().at(name).make();
}

std::string language_of_references(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  if (ending.starts_with(".ref")) ending = file.stem().extension().string();
  const size_t hyphen = ending.rfind('-');
  return ending.empty() ? "" : ending.substr(hyphen == std::string::npos ? 1 : hyphen + 1);
}

std::string default_bleu_tokenizer(const std::string& language) {
  if (language == "zh") return "zh";
  return language == "ja" ? "char" : "13a";
}

}  // namespace draftsmith::metrics
