#include "recipes/stages/tokenizers.h"

#include "base/error.h"
#include "base/logging.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::recipes {

void require_same_tokenizer(const std::string& expected, const std::string& found, const std::filesystem::path& where,
                            const std::string& hint) {
  if (found == expected) return;
  throw UserError({.where = where.string(),
                   .what = "it was made with another tokenizer",
                   .expected = "tokenizer " + expected.substr(0, 16),
                   .found = "tokenizer " + found.substr(0, 16),
                   .hint = hint});
}

void require_tokenizer(const data::Corpus& corpus, const data::Tokenizer& tokenizer) {
  require_same_tokenizer(tokenizer.hash(), corpus.info().tokenizer_hash, corpus.file(),
                         "prepare it with the tokenizer of this stage");
}

std::unique_ptr<data::Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& expected) {
  if (!data::has_tokenizer(model)) {
    log_warning("  {} has no tokenizer, so its token ids cannot be compared with the corpus's", model.string());
    return nullptr;
  }
  auto tokenizer = data::load_tokenizer(model);
  require_same_tokenizer(expected, tokenizer->hash(), model,
                         "prepare tokenizer and corpora of the recipe with this model's own tokenizer");
  return tokenizer;
}

}  // namespace draftsmith::recipes
