#include "data/chat/chat_stream.h"

#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/text/line_reader.h"
#include "data/text/policied_stream.h"

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
class ChatStream : public PoliciedStream {
 public:
  ChatStream(const std::filesystem::path& file, std::string field, ChatTemplate chat, const TextPolicies& policies)
      : PoliciedStream(policies), lines_(file), field_(std::move(field)), chat_(std::move(chat)) {
    counts_.byte_order_marks = lines_.had_byte_order_mark() ? 1 : 0;
  }

  std::vector<std::filesystem::path> files() const override { return {lines_.file(), chat_.file()}; }

 protected:
  bool fetch(Example& example) override {
    while (waiting_.empty()) {
      std::string line;
      if (!lines_.next(line)) return false;
      counts_.crlf_lines = lines_.crlf_lines();
      read_line(line);
    }
    example = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }

  std::string where(const Example& example, size_t) const override { return example.where; }

 private:
  void read_line(std::string& line) {
    bool replaced = false;
    if (!admit_text(lines_.where(), line, replaced)) {
      ++counts_.dropped_invalid_utf8;
      return;
    }
    if (replaced) ++counts_.replaced_invalid_utf8;
    std::vector<ChatReply> replies;
    if (!is_blank(line)) replies = chat_.replies(conversation_on(line, field_, lines_.where()));
    for (ChatReply& reply : replies) {
      waiting_.push_back({.source = std::move(reply.prompt),
                          .targets = {std::move(reply.reply)},
                          .where = lines_.where(),
                          .from_template = true});
    }
    if (!replies.empty()) return;
    if (policies_.empty == "error") {
      throw UserError({.where = lines_.where(),
                       .what = "a conversation without a message of the assistant",
                       .expected = "at least one, which is learned",
                       .hint = "choose the policy drop for empty lines"});
    }
    ++counts_.dropped_empty;
  }

  LineReader lines_;
  std::string field_;
  ChatTemplate chat_;
  std::deque<Example> waiting_;
};

}  // namespace

std::unique_ptr<ExampleStream> open_chat(const std::filesystem::path& file, const std::string& field, ChatTemplate chat,
                                         const TextPolicies& policies) {
  return std::make_unique<ChatStream>(file, field, std::move(chat), policies);
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
