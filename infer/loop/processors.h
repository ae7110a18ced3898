// Logits processors of a model directory's generation settings (forced and suppressed tokens, minimum lengths,
// repetition rules), in Transformers' order. They act at every position, also inside a draft that is being verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "infer/loop/rows.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// What precedes the logits: logits[b,j] predict the token after row b's committed tokens and its first `first + j`
// drafted ones.
struct ProcessorContext {
  std::span<const Row> rows;
  std::span<const std::vector<int64_t>> drafted;  // [B]; may be empty lists unless needs_history()
  int64_t first = 0;
};

class LogitsProcessors {
 public:
  LogitsProcessors() = default;
  LogitsProcessors(model::GenerationConfig settings, int64_t min_new_tokens);

  bool empty() const { return !active_; }
  // Whether a processor reads the drafted tokens themselves and not just their number.
  bool needs_history() const { return history_; }
  // Changes logits [B,P,V] in place.
  void apply(at::Tensor logits, const ProcessorContext& context) const;

 private:
  struct Position;
  void penalise(const Position& position) const;
  void ban_repetitions(const Position& position) const;
  void ban_words(const Position& position) const;
  void bound_length(const Position& position) const;
  void force_and_suppress(const Position& position) const;

  model::GenerationConfig settings_;
  bool active_ = false;
  bool history_ = false;
};

}  // namespace draftsmith::infer
