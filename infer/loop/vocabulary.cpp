#include "infer/loop/vocabulary.h"

#include <algorithm>
#include <limits>

namespace draftsmith::infer {

namespace {

constexpr const char* kHint = "use a drafter made with the target's tokenizer";

// Returns the first id whose pieces differ, or -1.
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

std::string text_of_known(const data::Tokenizer& tokenizer, std::span<const int64_t> ids) {
  std::vector<int32_t> known;
  for (const int64_t id : ids) {
    if (id >= 0 && id < tokenizer.vocabulary()) known.push_back(static_cast<int32_t>(id));
  }
  return tokenizer.decode(known);
}

int64_t ids_in_use(const data::Tokenizer& tokenizer, std::span<const int64_t> eos) {
  int64_t count = tokenizer.writable_ids();
  for (const int64_t id : eos) count = std::max(count, id + 1);
  return count;
}

void mask_padding(at::Tensor logits, int64_t ids) {
  const int64_t width = logits.size(-1);
  if (ids >= width) return;
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat && logits.is_contiguous()) {
    float* values = logits.mutable_data_ptr<float>();
    for (int64_t end = width; end <= logits.numel(); end += width) {
      std::fill(values + end - width + ids, values + end, -std::numeric_limits<float>::infinity());
    }
    return;
  }
  logits.narrow(-1, ids, width - ids).fill_(-std::numeric_limits<double>::infinity());
}

at::Tensor known_tokens(const at::Tensor& tokens, const model::ModelInfo& model, int64_t vocabulary) {
  return model.vocabulary < vocabulary ? tokens.masked_fill(tokens.ge(model.vocabulary), model.pad) : tokens;
}

at::Tensor fit_vocabulary(const at::Tensor& logits, int64_t vocabulary) {
  const int64_t width = logits.size(1);
  if (width == vocabulary) return logits;
  if (width > vocabulary) return logits.narrow(1, 0, vocabulary);
  return at::constant_pad_nd(logits, {0, vocabulary - width}, -std::numeric_limits<double>::infinity());
}

std::vector<std::vector<int64_t>> mask_unknown_ids(const model::ModelInfo& model,
                                                   std::span<const std::vector<int64_t>> lists) {
  std::vector<std::vector<int64_t>> known(lists.begin(), lists.end());
  for (auto& list : known) {
    std::replace_if(
        list.begin(), list.end(), [&](int64_t id) { return id >= model.vocabulary; }, model.pad);
  }
  return known;
}

}  // namespace draftsmith::infer
