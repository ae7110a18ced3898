// Collects what a router is trained on while a target decodes with a drafter: wrapped around the two, it sees every
// distribution q that a token was drafted from and the target's distribution p for the same position.
//
// Collected are the positions that verification examined, the accepted ones and the first rejected one, as alpha counts
// them. Behind a rejection p and q exist too, but for a text that decoding never takes: what a router says there
// changes nothing (drafting should have ended before), and a drafter's confusion behind its own mistake would teach it
// another mixture of texts than it meets. Windows are as long as may be (fixed), so that positions late in a draft are
// met as often as they are reached. The soft target is TV(q, p) = 1/2 sum |q - p| = 1 - sum min(q, p), the probability
// that a token sampled from q is rejected; p and q at temperature 1, nothing cut, whatever decoding samples at.
#pragma once

#include <memory>
#include <vector>

#include "data/teacher/router_data.h"
#include "infer/parts.h"

namespace draftsmith::infer {

// Where the wrapped parts meet. One batch after the other is decoded.
class RouterCollector {
 public:
  explicit RouterCollector(int64_t top_k) : top_k_(top_k) {}

  // Parts that do what these do, and tell this collector, which must outlive them. The drafter gives logits. `eos`: ids
  // that end a text; where drafted tokens are not looked at before they are verified (on a GPU), a draft goes on behind
  // one, and what lies there is no text that decoding takes.
  DraftParts around(DraftParts parts, std::vector<int64_t> eos);
  // What was collected since the last call, by rising source line (Row::line), in the order of the text.
  data::RouterRows take();

  // --- what the wrapped parts tell ---
  // The drafter's logits [B,V] for the next token of a window; the loop processes them in place.
  void drafted(const at::Tensor& logits, bool first_of_window);
  void judged(const Verification& verification, const at::Tensor& accepted);

 private:
  struct Position {
    int64_t line = 0;
    int64_t index = 0;  // of the token in the text, samples apart
    float entropy = 0;
    std::vector<float> probabilities = {};  // [k]
    std::vector<int64_t> ids = {};          // [k]
    float disagreement = 0;
    bool rejected = false;
  };
  template <class T>
  void add(const Row& row, int64_t index, const T* q, const T* p, int64_t vocabulary);

  int64_t top_k_;
  std::vector<int64_t> eos_;
  std::vector<at::Tensor> window_;  // one [B,V] a step
  std::vector<Position> positions_;
};

}  // namespace draftsmith::infer
