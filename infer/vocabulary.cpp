#include "infer/vocabulary.h"

#include <algorithm>
#include <string>

namespace draftsmith::infer {

namespace {

constexpr const char* kHint = "use a drafter made with the target's tokenizer";

// First id whose pieces differ, or -1.
int64_t first_difference(const data::Tokenizer& a, const data::Tokenizer& b) {
  const int64_t shared = std::min(a.vocabulary(), b.vocabulary());
  for (int64_t id = 0; id < shared; ++id) {
    if (a.piece(static_cast<int32_t>(id)) != b.piece(static_cast<int32_t>(id))) return id;
  }
  return -1;
}

std::string described(const data::Tokenizer& tokenizer, int64_t id) {
  std::string text = std::to_string(tokenizer.vocabulary()) + " pieces";
  if (id >= 0) text += ", id " + std::to_string(id) + " is '" + tokenizer.piece(static_cast<int32_t>(id)) + "'";
  return text;
}

}  // namespace

void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems) {
  const std::string where = "drafter " + drafter.name + " of target " + target.name;
  if (target_tokenizer == nullptr || drafter_tokenizer == nullptr) {
    if (target.vocabulary == drafter.vocabulary) return;
    problems.add({where, "drafter and target have vocabularies of different sizes",
                  std::to_string(target.vocabulary) + " ids, as the target",
                  std::to_string(drafter.vocabulary) + " ids", kHint});
    return;
  }
  if (target_tokenizer->hash() == drafter_tokenizer->hash()) return;
  const int64_t id = first_difference(*target_tokenizer, *drafter_tokenizer);
  if (id < 0 && target_tokenizer->vocabulary() == drafter_tokenizer->vocabulary()) return;
  problems.add({where, "drafter and target have tokenizers with different pieces", described(*target_tokenizer, id),
                described(*drafter_tokenizer, id), kHint});
}

}  // namespace draftsmith::infer
