// Inputs of a training run.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "distributed/process_group.h"
#include "model/files/generation_config.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// Inputs of a run. All pointers and references must outlive the trainer.
struct TrainerInputs {
  TrainableModel& trainable;  // holds the result afterwards
  const data::Corpus& corpus;
  const data::Corpus* validation = nullptr;    // none: no validation
  const data::Tokenizer* tokenizer = nullptr;  // copied into model directories; needed for BLEU
  std::vector<std::string> references = {};    // validation texts for BLEU, one an example; empty: the decoded targets
  model::TransformerModel* teacher = nullptr;  // for overlap and speculative decodes
  TeacherSource* distilled = nullptr;          // for distill; none: the teacher that the trained models run anyway
  std::optional<model::GenerationConfig> generation = {};  // written beside the models
  std::string identity = {};  // hash of inputs and options; a run of another identity is not resumed
  // Directory of a finished or failed run, whose last checkpoint this run begins from; empty: none.
  std::filesystem::path continue_from = {};
  // Inputs by option, as texts that tell them apart: those that a run which continues this one must share, and those of
  // the validation, without which the best models of two runs are not compared.
  std::map<std::string, std::string> shared = {};
  std::map<std::string, std::string> validated = {};
  ProgressStyle progress = ProgressStyle::kQuiet;
  ProcessGroup* world = &ProcessGroup::single();  // processes that share the run; the leader alone writes
};

}  // namespace draftsmith::train
