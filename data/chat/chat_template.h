// Chat templates of model directories: conversations as the text that a model was trained on. Jinja2 renders them in a
// Python process, with the variables, filters and functions of Transformers' apply_chat_template
// (docs/reference/chat.md).
//
// A conversation is a list of messages with role and content, or an object with `messages`, `tools` and `documents`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Part of a conversation's text that a model is asked to write, and all text before it.
struct ChatReply {
  std::string prompt;
  std::string reply;
};

class ChatTemplate {
 public:
  // Starts the Python process, which lives as long as this object. `tokens`: texts of the special tokens, bos_token and
  // others. `seconds` is the limit of each conversation. Errors: UserError for text that is no template, and for a
  // missing Python or jinja2.
  ChatTemplate(std::string text, nlohmann::ordered_json tokens, std::filesystem::path file, double seconds = 10);

  // Returns the text of a conversation. `generation_prompt`: with the beginning of the assistant's next message.
  // Errors: UserError with the template's line if it fails, refuses the messages or takes too long; Interrupted.
  std::string render(const nlohmann::ordered_json& conversation, bool generation_prompt);

  // Returns each message of the assistant with the text before it. Errors: as above; UserError for a template whose
  // text of a conversation's beginning is no beginning of the whole text.
  std::vector<ChatReply> replies(const nlohmann::ordered_json& conversation);

  const std::filesystem::path& file() const { return file_; }

 private:
  void start();
  std::string ask(const nlohmann::ordered_json& request, double seconds);

  std::filesystem::path file_;
  nlohmann::ordered_json setup_;
  double seconds_;
  std::unique_ptr<PythonScript> python_;  // none after it died: the next conversation starts another one
};

// Text of a template, and the file that holds it.
struct ChatTemplateText {
  std::string text;
  std::filesystem::path file;
};

// Returns the template's text as Transformers finds it in a model directory: chat_template.jinja, or else chat_template
// of tokenizer_config.json (the one named "default" of several); nothing if there is none.
std::optional<ChatTemplateText> find_chat_template(const std::filesystem::path& directory);

// Returns the template of a model directory, as find_chat_template() does, or of a file in it. Errors: UserError if
// there is none, and as ChatTemplate.
ChatTemplate load_chat_template(const std::filesystem::path& file_or_directory);

// What CMake embeds: "render_chat.py".
std::span<const EmbeddedText> chat_texts();

// Opens a file whose objects have a list of messages in `field`, and perhaps tools and documents. Each message of the
// assistant is an example: its source is the template's text before it, its target the message with the template's end.
// Only targets are learned, so the loss is on the assistant's part alone. Conversations without such a message follow
// the policy for empty text. `prompts`: each conversation without its answer is an example, whose target is empty.
std::unique_ptr<ExampleStream> open_chat(const std::filesystem::path& file, const std::string& field, ChatTemplate chat,
                                         const TextPolicies& policies, bool prompts);

// Removes and returns the assistant's message that ends a conversation of several. Returns nothing if none does.
std::optional<nlohmann::ordered_json> take_answer(nlohmann::ordered_json& conversation);

// Returns the conversation on each line: an object of messages, tools and documents. Errors: UserError that names the
// line.
std::vector<nlohmann::ordered_json> read_conversations(const std::filesystem::path& file, const std::string& field);

// Returns the ids of a template's text. The text has its own BOS, so none is added; the texts of BOS and EOS become
// their ids with SentencePiece models too, which do not look for them.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view text);

// Returns the ids that end a model's outputs: EOS, and the eos_token_id of a generation_config.json beside the
// tokenizer.
std::vector<int32_t> reply_ends(const Tokenizer& tokenizer);

// Returns the ids of an assistant's message up to the first of `ends`; without one, the first end is added. A
// template's newline behind an end is thus left out, as a model ends there. The ids are those that follow the prompt's
// in the whole text, or where these differ, those of the message alone.
std::vector<int32_t> encode_reply(const Tokenizer& tokenizer, std::string_view prompt, std::string_view text,
                                  std::span<const int32_t> ends);

}  // namespace draftsmith::data
