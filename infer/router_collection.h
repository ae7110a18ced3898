// Collects a router's training data while a target decodes with a drafter: the distribution q that each token was
// drafted from, and the target's distribution p at the same position.
//
// Positions are those that verification examined, the accepted ones and the first rejected one, as for alpha. Positions
// behind a rejection belong to a text that decoding never takes. A router's answer there changes nothing, because
// drafting should have ended before, and they would shift the mixture of texts that it is trained on. Windows are fixed
// and as long as allowed, so late positions of a draft occur as often as they are reached.
//
// The soft target is TV(q, p) = 1/2 sum |q - p| = 1 - sum min(q, p), the probability that a token sampled from q is
// rejected. p and q are taken at temperature 1 without truncation, whatever decoding samples at.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "data/router/router_data.h"
#include "infer/loop/draft_parts.h"
#include "infer/windows/draft_history.h"

namespace draftsmith::infer {

// Collects positions from parts wrapped around a drafter and an acceptance rule. Batches are decoded one after the
// other.
class RouterCollector {
 public:
  explicit RouterCollector(int64_t top_k) : top_k_(top_k) {}

  // Returns parts that behave like `parts` and report to this collector, which must outlive them. The drafter must give
  // logits. `eos`: ids that end a text. On a GPU a draft may go on behind an EOS; positions there are not collected.
  DraftParts around(DraftParts parts, std::vector<int64_t> eos);
  // Returns the positions collected since the last call, ordered by source line (Row::line) and position in the text.
  data::RouterRows drain();

  // --- called by the wrapped parts ---
  // Keeps the logits reported last, which on devices other than the CPU the drafter's next step may overwrite.
  void keep_last();
  // Reports the drafter's logits [B,V] for the next token of a window. The loop processes them in place afterwards.
  void drafted(const at::Tensor& logits, bool first_of_window);
  // Reports a judged draft.
  void judged(const Verification& verification, const at::Tensor& accepted);

 private:
  struct Position {
    int64_t line = 0;
    int64_t index = 0;  // the token's index in the text
    float entropy = 0;
    std::vector<float> probabilities = {};  // [k]
    std::vector<int64_t> ids = {};          // [k]
    DraftHistory::Context context = {};
    float disagreement = 0;
    bool rejected = false;
  };
  // The text's history, by source line and output. A row without new tokens begins a text.
  DraftHistory& history_of(const Row& row);
  template <class T>
  void add(const Row& row, int64_t index, const T* q, const T* p, int64_t vocabulary);

  int64_t top_k_;
  std::vector<int64_t> eos_;
  std::vector<at::Tensor> window_;  // one [B,V] a step
  std::map<std::pair<uint64_t, size_t>, DraftHistory> histories_;
  std::vector<Position> positions_;
};

}  // namespace draftsmith::infer
