#include "data/chat/chat_stream.h"

#include <deque>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace draftsmith::data {

namespace {

using nlohmann::ordered_json;

// Returns the conversation of a line. The order of keys is kept, for templates that print them.
ordered_json conversation_on(const std::string& line, const std::string& field, const std::string& where) {
  const nlohmann::json checked = parse_json(line, where);
  const ordered_json object = ordered_json::parse(line);
  if (object.is_object() && object.contains(field)) return parse_conversation(object, field, where);
  throw UserError({.where = where,
                   .what = "no field \"" + field + "\"",
                   .expected = "a JSON object with a list of messages under that name",
                   .found = brief(checked)});
}

// Makes an example of each of the assistant's messages.
class ChatFormat {
 public:
  ChatFormat(std::string field, ChatTemplate chat) : field_(std::move(field)), chat_(std::move(chat)) {}

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
  void read_line(ExampleStream& stream, std::string& line) {
    const std::string where = stream.lines().where();
    if (!stream.admit_utf8(where, line)) return;
    std::vector<ChatReply> replies;
    if (!is_blank(line)) replies = chat_.replies(conversation_on(line, field_, where));
    for (ChatReply& reply : replies) {
      waiting_.push_back({.source = std::move(reply.prompt),
                          .targets = {std::move(reply.reply)},
                          .where = where,
                          .from_template = true});
    }
    if (!replies.empty()) return;
    stream.drop_empty({.where = where,
                       .what = "a conversation without a message of the assistant",
                       .expected = "at least one, which is learned",
                       .hint = "choose the policy drop for empty lines"});
  }

  std::string field_;
  ChatTemplate chat_;
  std::deque<Example> waiting_;
};

}  // namespace

std::unique_ptr<ExampleStream> open_chat(const std::filesystem::path& file, const std::string& field, ChatTemplate chat,
                                         const TextPolicies& policies) {
  const std::filesystem::path templates = chat.file();
  const auto format = std::make_shared<ChatFormat>(field, std::move(chat));
  const auto read = [format](ExampleStream& stream, Example& example) { return (*format)(stream, example); };
  return std::make_unique<ExampleStream>(std::vector{file}, policies, read, templates);
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

}  // namespace draftsmith::data
