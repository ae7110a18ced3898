// kind = "language": writes text of the synthetic language pair. Makes {train,valid,test}.{src,tgt}.

#include "data/synthetic/synthetic.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

void run_language(const data::SyntheticOptions& options, const StageContext& run) {
  data::write_synthetic(options, run.directory);
}

}  // namespace

StageKind language_stage() {
  return make_stage_kind<data::SyntheticOptions>("language", 1, "writes text of a synthetic pair of languages",
                                                 run_language);
}

}  // namespace draftsmith::recipes
