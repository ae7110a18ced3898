// The interface of BLEU's tokenizers. metrics/bleu_tokenizers.h lists and makes them.
#pragma once

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

}  // namespace draftsmith::metrics
