#include "recipes/stage.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

const std::vector<StageKind>& stage_kinds() {
  static const std::vector<StageKind> kinds = {language_stage(),    tokenizer_stage(),       corpus_stage(),
                                               ngram_stage(),       train_stage(),           heads_stage(),
                                               prune_stage(),       teacher_outputs_stage(), teacher_logits_stage(),
                                               router_data_stage(), router_stage(),          evaluate_stage()};
  return kinds;
}

const StageKind* find_stage_kind(const std::string& name) {
  for (const StageKind& kind : stage_kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace draftsmith::recipes
