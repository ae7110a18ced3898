// Lines of a suite's tasks as token ids of its target, and back.
#pragma once

#include <string>
#include <vector>

#include "infer/evaluation_engine.h"
#include "infer/evaluation_loading.h"

namespace draftsmith::infer {

// Source line -> ids, as EvaluationEngine::encode() says but for the check of the context's room.
Prompt encode_prompt(const LoadedModel& target, const std::string& source, const EvaluationTask& task, bool& cut);

// The rest of a decoder-only model's text whose beginning is the prompt, see EvaluationEngine::encode_continuation().
std::vector<int64_t> encode_rest(const LoadedModel& target, const std::string& source, const EvaluationTask& task);

// Reference -> ids, EOS included.
std::vector<int64_t> encode_output(const LoadedModel& target, const std::string& reference, const EvaluationTask& task);

// Text of generated ids; for `ids` the ids themselves without EOS.
std::string output_text(const LoadedModel& target, const std::vector<int64_t>& generated, bool ids);

}  // namespace draftsmith::infer
