// Logits processors that a model directory's generation settings ask for (forced and suppressed tokens, minimum
// lengths, repetition rules), in Transformers' order. They change every position, also inside a draft under
// verification.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "infer/loop/rows.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// The tokens before some logits: logits[b,j] predict the token after row b's committed tokens and its first `first + j`
// drafted tokens.
struct ProcessorContext {
  std::span<const Row> rows;
  std::span<const std::vector<int64_t>> drafted = {};  // [B] read if needs_history(); empty: nothing is drafted
  int64_t first = 0;
};

class LogitsProcessors {
 public:
  LogitsProcessors() = default;
  explicit LogitsProcessors(model::GenerationConfig settings);

  bool empty() const { return !active_; }
  // Returns whether a processor reads the drafted tokens themselves, beyond their number.
  bool needs_history() const { return history_; }
  // Changes logits [B,P,V] in place: one operation for each kind of rule, whatever the rows and positions.
  void apply(at::Tensor logits, const ProcessorContext& context) const;

 private:
  struct Position;
  struct Edits;
  // These add what a rule asks for at one position.
  void add_penalties(const Position& position, Edits& edits) const;
  void add_repetitions(const Position& position, Edits& edits) const;
  void add_words(const Position& position, Edits& edits) const;
  void add_length_rules(const Position& position, Edits& edits) const;
  void add_forced_and_suppressed(const Position& position, Edits& edits) const;

  model::GenerationConfig settings_;
  bool active_ = false;
  bool history_ = false;
};

}  // namespace draftsmith::infer
