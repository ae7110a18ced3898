// Conversion of a suite's task lines to token ids of its target, and back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "evaluate/engine/engine.h"
#include "infer/load_models.h"

namespace draftsmith::evaluate {

// Encoder of source lines. It reads the target's chat template once, when a task asks for it. Refers to the target.
class PromptEncoder {
 public:
  explicit PromptEncoder(const infer::LoadedModel& target) : target_(target) {}

  // Returns the ids of a source line, like Engine::encode(), but does not check the room in the context.
  Prompt prompt(const std::string& source, const TaskOptions& task, bool& cut) const;

  // Returns the ids of the text that was cut off a decoder-only model's prompt, see Engine::encode_continuation().
  std::vector<int64_t> rest(const std::string& source, const TaskOptions& task) const;

 private:
  // Source before it is cut, and the end that a cut keeps: suffix and EOS.
  struct Whole {
    Prompt text;
    Prompt end;
  };
  Whole whole(const std::string& source, const TaskOptions& task) const;
  data::ChatTemplate& chat() const;

  const infer::LoadedModel& target_;
  mutable std::optional<data::ChatTemplate> chat_;
};

// Returns the ids of a reference, EOS included.
std::vector<int64_t> encode_output(const infer::LoadedModel& target, const std::string& reference,
                                   const TaskOptions& task);

// Returns the text of generated ids. With `ids` it is the ids themselves without EOS.
std::string output_text(const infer::LoadedModel& target, const std::vector<int64_t>& generated, bool ids);

}  // namespace draftsmith::evaluate
