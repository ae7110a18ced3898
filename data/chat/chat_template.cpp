#include "data/chat/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "data/chat/template_renderer.h"
#include "data/tokenizers/tokenizer_config.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kAssistant = "assistant";

// Returns the text of `chat_template`, which is a text or a list of named ones; empty if there is none.
std::string template_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const nlohmann::json& one : value) {
    if (one.is_object() && one.value("name", "") == "default") return one.value("template", "");
  }
  return "";
}

// Returns the messages before message `end`.
ordered_json beginning(const ordered_json& messages, size_t end) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < end; ++i) list.push_back(messages[i]);
  return list;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& text, ordered_json tokens, fs::path file)
    : file_(std::move(file)),
      source_(file_.string()),
      nodes_(parse_template(text, source_)),
      tokens_(std::move(tokens)) {}

std::string ChatTemplate::render(const ordered_json& messages, bool generation_prompt) const {
  ordered_json variables = tokens_;
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = generation_prompt;
  return render_template(nodes_, variables, source_);
}

std::vector<ChatReply> ChatTemplate::replies(const ordered_json& messages) const {
  std::vector<ChatReply> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].value("role", "") != kAssistant) continue;
    std::string prompt = render(beginning(messages, i), true);
    const std::string whole = render(beginning(messages, i + 1), false);
    if (!whole.starts_with(prompt) || whole.size() == prompt.size()) {
      throw UserError({.where = source_,
                       .what = "the template does not continue its own prompt with the assistant's message",
                       .expected = "text that begins with the prompt before it, and is longer",
                       .found = "message " + std::to_string(i + 1) + " changes the text before it",
                       .hint = "such templates (which drop earlier thoughts, for instance) cannot be trained on"});
    }
    std::string reply = whole.substr(prompt.size());
    list.push_back({std::move(prompt), std::move(reply)});
  }
  return list;
}

ChatTemplate load_chat_template(const fs::path& file_or_directory) {
  const fs::path folder = fs::is_directory(file_or_directory) ? file_or_directory : file_or_directory.parent_path();
  const fs::path config_file = folder / kTokenizerConfig;
  const nlohmann::json config = fs::exists(config_file) ? load_json(config_file) : nlohmann::json::object();
  const ordered_json tokens = special_token_texts(folder);
  if (file_or_directory.extension() == ".jinja") return {read_file(file_or_directory), tokens, file_or_directory};
  if (fs::exists(folder / kTemplateFile)) return {read_file(folder / kTemplateFile), tokens, folder / kTemplateFile};
  const std::string text = config.contains("chat_template") ? template_text(config["chat_template"]) : "";
  if (!text.empty()) return {text, tokens, config_file};
  throw UserError({.where = folder.string(),
                   .what = "there is no chat template",
                   .expected = std::string(kTemplateFile) + ", or chat_template in " + kTokenizerConfig,
                   .found = fs::exists(config_file) ? "a tokenizer_config.json without one" : "neither",
                   .hint = "chat messages need a model whose tokenizer has a template"});
}

ordered_json parse_messages(const ordered_json& value, const std::string& where) {
  const auto is_message = [](const ordered_json& one) {
    return one.is_object() && one.contains("role") && one["role"].is_string() && one.contains("content") &&
           one["content"].is_string();
  };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_message)) return value;
  throw UserError({.where = where,
                   .what = "no conversation",
                   .expected = "a list of messages, each with the texts role and content",
                   .found = brief(nlohmann::json(value))});
}

}  // namespace draftsmith::data
