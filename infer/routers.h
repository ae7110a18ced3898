// Routers beside decoding: a router is loaded for the drafter that it was trained for, and its training data are
// collected while a target decodes with that drafter.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/router/router_data.h"
#include "infer/drafters/registry.h"
#include "infer/loop/decode_loop.h"
#include "model/models/router.h"

namespace draftsmith::infer {

// Reads the text of a drafter that a router can be trained for. Errors: UserError for a drafter that is no model of its
// own; `where` names the option.
DrafterSpec parse_router_drafter(const std::string& text, const std::string& where);

// Returns the model whose embeddings a drafter's router reads: the drafter's, or the target's of a features drafter,
// which has no others. Errors: UserError for a drafter that is no transformer; `where` and `name` as in load_router().
const model::TransformerModel& router_embeddings(const LoadedDrafter* drafter, const model::LanguageModel* target,
                                                 const std::string& where, const std::string& name);

// Loads a router and binds it to its drafter and the target, which must outlive it. Errors: UserError for a router of
// another drafter, and for a drafter that is no transformer; `where` names the router's option, `name` the drafter in
// messages.
std::unique_ptr<model::RouterPredictor> load_router(const std::filesystem::path& directory,
                                                    const LoadedDrafter* drafter, const model::LanguageModel* target,
                                                    const std::string& where, const std::string& name);

// Collects the distribution q that each token was drafted from, and the target's distribution p at the same position,
// both at temperature 1 without truncation, while rejection sampling judges drafts. The soft target is TV(q, p) =
// 1 - sum min(q, p), the probability that a token sampled from q is rejected.
//
// Positions are those that verification examined, as for alpha: behind a rejection lies a text that decoding never
// takes. Windows are fixed and as long as allowed, so late positions of a draft occur as often as they are reached.
class RouterCollector {
 public:
  explicit RouterCollector(int64_t top_k) : top_k_(top_k) {}

  // Returns the parts of lossless decoding with windows of that length, which report to this collector. It must outlive
  // them. The drafter must give logits.
  DraftParts watched(std::unique_ptr<Drafter> drafter, int64_t window);
  // Returns the positions collected since the last call, ordered by source line (Row::line) and position in the text.
  data::RouterRows drain();

  // --- called by these parts ---
  // Reports the drafter's processed logits [B,V] for the next token of a draft.
  void drafted(const at::Tensor& logits);
  // Forgets a draft that nobody judged.
  void forget_draft() { window_.clear(); }
  // Reports a judged draft.
  void judged(const Verification& verification, const at::Tensor& accepted);

 private:
  template <class T>
  void add(const Row& row, const T* q, const T* p, int64_t vocabulary, bool rejected);

  int64_t top_k_;
  std::vector<at::Tensor> window_;              // one [B,V] a step
  std::map<uint64_t, data::RouterRows> texts_;  // by source line
};

}  // namespace draftsmith::infer
