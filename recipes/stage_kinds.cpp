#include "recipes/stage.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

const Registry<StageKind>& stage_kinds() {
  static const Registry<StageKind> kinds(
      "stage kind",
      {language_stage(), tokenizer_stage(), corpus_stage(), ngram_stage(), train_stage(), heads_stage(), prune_stage(),
       teacher_outputs_stage(), teacher_logits_stage(), router_data_stage(), router_stage(), evaluate_stage()});
  return kinds;
}

}  // namespace draftsmith::recipes
