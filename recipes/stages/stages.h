// Kinds of stages: an options struct and the function that runs a stage (recipes/stage.h).
#pragma once

#include "recipes/stage.h"

namespace draftsmith::recipes {

StageKind language_stage();         // kind = "language": text of the synthetic language
StageKind tokenizer_stage();        // kind = "tokenizer": spiece.model
StageKind corpus_stage();           // kind = "corpus": corpus.h5
StageKind ngram_stage();            // kind = "ngram": ngram.h5
StageKind train_stage();            // kind = "train": model/
StageKind heads_stage();            // kind = "heads": model/
StageKind prune_stage();            // kind = "prune": model/
StageKind teacher_outputs_stage();  // kind = "teacher-outputs": corpus.h5
StageKind teacher_logits_stage();   // kind = "teacher-logits": teacher_logits.h5
StageKind router_data_stage();      // kind = "router-data": router_data.h5
StageKind router_stage();           // kind = "router": router/, router_report.json
StageKind evaluate_stage();         // kind = "evaluate": results.json, report.html, hyp/

}  // namespace draftsmith::recipes
