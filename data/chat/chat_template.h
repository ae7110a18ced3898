// Chat templates of model directories: conversations as the text that a model was trained on. They are a subset of
// Jinja, rendered as Transformers' apply_chat_template does; docs/reference/chat.md says what they may use.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat/template_nodes.h"

namespace draftsmith::data {

// Part of a conversation's text that a model is asked to write, and all text before it.
struct ChatReply {
  std::string prompt;
  std::string reply;
};

class ChatTemplate {
 public:
  // `tokens`: texts of the special tokens, bos_token and others. Errors: UserError for text that is no template.
  ChatTemplate(const std::string& text, nlohmann::ordered_json tokens, std::filesystem::path file);

  // Returns the text of a conversation, a list of objects with role and content. `generation_prompt`: with the
  // beginning of the assistant's next message. Errors: UserError for a template that uses what is unknown here, or
  // that refuses the messages.
  std::string render(const nlohmann::ordered_json& messages, bool generation_prompt) const;

  // Returns each message of the assistant with the text before it. Errors: UserError as above; for messages without
  // role or content; for a template whose text of a conversation's beginning is no beginning of the whole text.
  std::vector<ChatReply> replies(const nlohmann::ordered_json& messages) const;

  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::string source_;
  std::vector<TemplateNode> nodes_;
  nlohmann::ordered_json tokens_;
};

// Returns the template of a model directory or of a file in it: chat_template.jinja, or else chat_template of
// tokenizer_config.json (the one named "default" of several). Errors: UserError if there is none.
ChatTemplate load_chat_template(const std::filesystem::path& file_or_directory);

// Returns the conversation that a JSON text holds. Errors: UserError at `where` unless it is a list of messages with
// role and content.
nlohmann::ordered_json parse_messages(const nlohmann::ordered_json& value, const std::string& where);

}  // namespace draftsmith::data
