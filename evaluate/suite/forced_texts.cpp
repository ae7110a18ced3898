#include "evaluate/suite/forced_texts.h"

#include "base/logging.h"

namespace draftsmith::evaluate {

ForcedTexts forced_texts(const TaskOptions& task, const TaskData& data, std::span<const Prompt> prompts,
                         int64_t max_new_tokens, const Engine& engine) {
  ForcedTexts texts;
  for (size_t line = 0; line < prompts.size(); ++line) {
    std::vector<int64_t> ids;
    try {
      ids = data.references.empty() ? engine.encode_continuation(data.sources[line], task)
                                    : engine.encode_reference(data.references[line].front(), task);
    } catch (const UserError& error) {
      Problem problem = error.problems().front();
      if (problem.where.empty()) problem.where = place_of(task, reference_file(task), line);
      log_warning("task {}: how well drafters predict its references is not measured: {}", task.name,
                  to_string(problem));
      return {};
    }
    if (ids.empty()) continue;
    if (std::ssize(ids) > max_new_tokens) ids.resize(static_cast<size_t>(max_new_tokens));
    texts.prompts.push_back(prompts[line]);
    texts.outputs.push_back(std::move(ids));
  }
  return texts;
}

}  // namespace draftsmith::evaluate
