// Conversations of jsonl files: as examples for training, and as they are.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/text/readers.h"

namespace draftsmith::data {

// Opens a file whose objects have a list of messages in `field`, and perhaps tools and documents. Each message of the
// assistant is an example: its source is the template's text before it, its target the message with the template's end.
// Only targets are learned, so the loss is on the assistant's part alone. Conversations without such a message follow
// the policy for empty text.
std::unique_ptr<ExampleStream> open_chat(const std::filesystem::path& file, const std::string& field, ChatTemplate chat,
                                         const TextPolicies& policies);

// Returns the conversation on each line, as an object (parse_conversation()). Errors: UserError that names the line.
std::vector<nlohmann::ordered_json> read_conversations(const std::filesystem::path& file, const std::string& field);

}  // namespace draftsmith::data
