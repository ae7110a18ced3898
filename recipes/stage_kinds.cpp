#include "recipes/stage.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

Fields<Execution> Execution::fields() {
  return Fields<Execution>("run: flags of every command that runs a model")
      .add("device", &Execution::device, NoResult{}, "auto (the first GPU, else the CPU), cpu, cuda or cuda:N.")
      .add("threads", &Execution::threads, Range{0, 1024}, Unit{"threads"}, NoResult{},
           "CPU threads; 0 lets LibTorch choose, usually one for each physical core.")
      .add("matmul_precision", &Execution::matmul_precision, NoResult{},
           "Matrix products on GPUs: highest, or high (TF32 for fp32, and shorter sums for bf16 and fp16: faster; "
           "near ties may go another way).")
      .add("quiet", &Execution::quiet, NoResult{}, "Show no progress, and no messages except warnings.");
}

const Registry<StageKind>& stage_kinds() {
  static const Registry<StageKind> kinds(
      "stage kind",
      {language_stage(), tokenizer_stage(), corpus_stage(), ngram_stage(), train_stage(), heads_stage(), prune_stage(),
       teacher_outputs_stage(), teacher_logits_stage(), router_data_stage(), router_stage(), evaluate_stage()});
  return kinds;
}

}  // namespace draftsmith::recipes
