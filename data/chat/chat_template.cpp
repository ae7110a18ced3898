#include "data/chat/chat_template.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kAssistant = "assistant";
constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr double kStartSeconds = 30;  // for Python and its modules, on a busy machine
constexpr double kGraceSeconds = 5;   // the script itself ends a conversation that takes too long

// Returns the text of `chat_template`, which is a text or a list of named ones; empty if there is none.
std::string template_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const nlohmann::json& one : value) {
    if (!one.is_object() || !one.contains("name") || one["name"] != "default" || !one.contains("template")) continue;
    if (one["template"].is_string()) return one["template"];
  }
  return "";
}

// Returns a conversation as an object.
ordered_json as_object(const ordered_json& conversation) {
  if (conversation.is_object()) return conversation;
  return {{"messages", conversation}};
}

bool is_message(const ordered_json& one) {
  if (!one.is_object() || !one.contains("role") || !one["role"].is_string()) return false;
  if (one.contains("content") && one["content"].is_string()) return true;
  const bool empty = !one.contains("content") || one["content"].is_null();
  return empty && one.contains("tool_calls") && one["tool_calls"].is_array();
}

bool are_objects(const ordered_json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& one) { return one.is_object(); });
}

}  // namespace

ChatTemplate::ChatTemplate(std::string text, ordered_json tokens, fs::path file, double seconds)
    : file_(std::move(file)), seconds_(seconds) {
  if (const auto bad = invalid_utf8_offset(text)) {
    throw UserError({file_.string(), "the chat template is no UTF-8", "", "byte " + std::to_string(*bad + 1), ""});
  }
  setup_ = {{"template", std::move(text)}, {"tokens", std::move(tokens)}, {"seconds", seconds}};
  start();
}

void ChatTemplate::start() {
  python_ = std::make_unique<PythonScript>(
      chat_texts(),
      ScriptMessages{.where = file_.string(), .what = "the chat template cannot be rendered", .module = "jinja2"});
  ask(setup_, seconds_ + kStartSeconds);
}

std::string ChatTemplate::ask(const ordered_json& request, double seconds) {
  auto python = std::exchange(python_, nullptr);  // killed where it fails
  std::string text = python->ask(request, seconds).get<std::string>();
  python_ = std::move(python);
  return text;
}

std::string ChatTemplate::render(const ordered_json& conversation, bool generation_prompt) {
  ordered_json request = as_object(conversation);
  request["add_generation_prompt"] = generation_prompt;
  if (!python_) start();
  return ask(request, seconds_ + kGraceSeconds);
}

std::vector<ChatReply> ChatTemplate::replies(const ordered_json& conversation) {
  const ordered_json whole = as_object(conversation);
  ordered_json beginning = whole;
  beginning["messages"] = ordered_json::array();
  std::vector<ChatReply> list;
  for (const ordered_json& message : whole["messages"]) {
    const bool learned = message.value("role", "") == kAssistant;
    std::string prompt = learned ? render(beginning, true) : "";
    beginning["messages"].push_back(message);
    if (!learned) continue;
    const std::string text = render(beginning, false);
    if (!text.starts_with(prompt) || text.size() == prompt.size()) {
      throw UserError({file_.string(), "the template does not continue its own prompt with the assistant's message",
                       "text that begins with the prompt before it, and is longer",
                       fmt::format("message {} changes the text before it", beginning["messages"].size()),
                       "such templates (which drop earlier thoughts, for instance) cannot be trained on"});
    }
    std::string reply = text.substr(prompt.size());
    list.push_back({std::move(prompt), std::move(reply)});
  }
  return list;
}

std::optional<ChatTemplateText> find_chat_template(const fs::path& directory) {
  const fs::path template_file = directory / kTemplateFile;
  if (fs::exists(template_file)) return ChatTemplateText{read_file(template_file, kMostBytes), template_file};
  const fs::path config_file = directory / kTokenizerConfig;
  const nlohmann::json config = fs::exists(config_file) ? load_json(config_file) : nlohmann::json::object();
  std::string text = config.contains("chat_template") ? template_text(config["chat_template"]) : "";
  return text.empty() ? std::nullopt : std::optional(ChatTemplateText{std::move(text), config_file});
}

ChatTemplate load_chat_template(const fs::path& file_or_directory) {
  const fs::path folder = fs::is_directory(file_or_directory) ? file_or_directory : file_or_directory.parent_path();
  const ordered_json tokens = special_token_texts(folder);
  if (file_or_directory.extension() == ".jinja") {
    return {read_file(file_or_directory, kMostBytes), tokens, file_or_directory};
  }
  if (const auto found = find_chat_template(folder)) return {found->text, tokens, found->file};
  throw UserError({folder.string(), "there is no chat template",
                   std::string(kTemplateFile) + ", or chat_template in " + kTokenizerConfig,
                   fs::exists(folder / kTokenizerConfig) ? "a tokenizer_config.json without one" : "neither",
                   "chat messages need a model whose tokenizer has a template"});
}

namespace {

// Returns the conversation on a line: its list of messages under `field`, tools and documents. The order of keys is
// kept, for templates that print them. Errors: UserError.
ordered_json conversation_on(const std::string& line, const std::string& field, const std::string& where) {
  const nlohmann::json checked = parse_json(line, where);
  const ordered_json object = ordered_json::parse(line);
  if (!object.is_object() || !object.contains(field)) {
    throw UserError({where, "no field \"" + field + "\"", "a JSON object with a list of messages under that name",
                     brief(checked), ""});
  }
  const ordered_json& messages = object[field];
  if (!messages.is_array() || messages.empty() || !std::all_of(messages.begin(), messages.end(), is_message)) {
    throw UserError({where, "no conversation", "a list of messages, each with the texts role and content",
                     brief(nlohmann::json(messages)), ""});
  }
  ordered_json conversation = {{"messages", messages}};
  for (const char* key : {"tools", "documents"}) {
    if (!object.contains(key) || object[key].is_null()) continue;
    if (!are_objects(object[key])) {
      throw UserError({where, "the conversation's " + std::string(key) + " cannot be read", "a list of JSON objects",
                       brief(nlohmann::json(object[key])), ""});
    }
    conversation[key] = object[key];
  }
  return conversation;
}

// Makes an example of each of the assistant's messages, or of each conversation a prompt alone.
class ChatFormat {
 public:
  ChatFormat(std::string field, ChatTemplate chat, bool prompts)
      : field_(std::move(field)), chat_(std::move(chat)), prompts_(prompts) {}

  bool operator()(ExampleStream& stream, Example& example) {
    for (std::string line; waiting_.empty();) {
      if (!stream.lines().next(line)) return false;
      read_line(stream, line);
    }
    example = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }

 private:
  void read_line(ExampleStream& stream, const std::string& line) {
    const std::string where = stream.lines().where();
    if (!stream.admit_utf8(where, line)) return;
    std::vector<ChatReply> replies;
    if (!is_blank(line)) replies = replies_in(conversation_on(line, field_, where));
    for (ChatReply& reply : replies) {
      waiting_.push_back({.source = std::move(reply.prompt),
                          .targets = {std::move(reply.reply)},
                          .where = where,
                          .from_template = true});
    }
    if (!replies.empty()) return;
    stream.drop_empty({where, is_blank(line) ? "blank line" : "a conversation without a message of the assistant",
                       is_blank(line) ? "a conversation on every line" : "at least one, which is learned", "",
                       "choose the policy drop for empty lines"});
  }

  std::vector<ChatReply> replies_in(ordered_json conversation) {
    if (!prompts_) return chat_.replies(conversation);
    take_answer(conversation);
    return {{chat_.render(conversation, true), ""}};
  }

  std::string field_;
  ChatTemplate chat_;
  bool prompts_;
  std::deque<Example> waiting_;
};

}  // namespace

std::unique_ptr<ExampleStream> open_chat(const std::filesystem::path& file, const std::string& field, ChatTemplate chat,
                                         const TextPolicies& policies, bool prompts) {
  const std::filesystem::path templates = chat.file();
  const auto format = std::make_shared<ChatFormat>(field, std::move(chat), prompts);
  const auto read = [format](ExampleStream& stream, Example& example) { return (*format)(stream, example); };
  return std::make_unique<ExampleStream>(std::vector{file}, policies, read, templates);
}

std::optional<ordered_json> take_answer(ordered_json& conversation) {
  ordered_json& messages = conversation["messages"];
  if (messages.size() < 2 || messages.back()["role"] != kAssistant) return std::nullopt;
  ordered_json answer = std::move(messages.back());
  messages.erase(messages.size() - 1);
  return answer;
}

std::vector<ordered_json> read_conversations(const std::filesystem::path& file, const std::string& field) {
  LineReader lines(file);
  std::vector<ordered_json> conversations;
  for (std::string line; lines.next(line);) {
    if (const auto bad = invalid_utf8_offset(line)) throw_invalid_utf8(lines.where(), line, *bad);
    if (!is_blank(line)) conversations.push_back(conversation_on(line, field, lines.where()));
  }
  return conversations;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view text) {
  AddedTokenFinder marks;
  for (const int32_t id : {tokenizer.bos(), tokenizer.eos()}) {
    if (id < 0 || tokenizer.encode(tokenizer.piece(id)) == std::vector{id}) continue;  // it finds its own
    marks.add(tokenizer.piece(id), {.content = tokenizer.piece(id), .id = id});
  }
  std::vector<int32_t> ids;
  for (const auto& [begin, end, id] : marks.split(text)) {
    const std::vector<int32_t> part =
        id < 0 ? tokenizer.encode(text.substr(begin, end - begin)) : std::vector<int32_t>{id};
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

std::vector<int32_t> reply_ends(const Tokenizer& tokenizer) {
  std::vector<int32_t> ends = {tokenizer.eos()};
  const fs::path file = tokenizer.file().parent_path() / "generation_config.json";
  const nlohmann::json settings = fs::exists(file) ? load_json(file) : nlohmann::json::object();
  const nlohmann::json found = settings.is_object() ? settings.value("eos_token_id", nlohmann::json()) : settings;
  for (const nlohmann::json& id : found.is_array() ? found : nlohmann::json::array({found})) {
    if (id.is_number_unsigned() && id < tokenizer.vocabulary()) ends.push_back(id);
  }
  return ends;
}

std::vector<int32_t> encode_reply(const Tokenizer& tokenizer, std::string_view prompt, std::string_view text,
                                  std::span<const int32_t> ends) {
  const std::vector<int32_t> before = encode_chat(tokenizer, prompt);
  std::vector<int32_t> ids = encode_chat(tokenizer, fmt::format("{}{}", prompt, text));
  if (std::ranges::mismatch(before, ids).in1 == before.end()) {
    ids.erase(ids.begin(), ids.begin() + std::ssize(before));
  } else {
    ids = encode_chat(tokenizer, text);
  }
  const auto end = std::ranges::find_first_of(ids, ends);
  if (end == ids.end()) {
    ids.push_back(ends.front());
  } else {
    ids.erase(end + 1, ids.end());
  }
  return ids;
}

}  // namespace draftsmith::data
