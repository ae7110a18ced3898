// Chat templates give the text of Transformers' apply_chat_template: styles in use, white space, operators, filters.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "data/chat/chat_template.h"
#include "tests/parity/transformers_reference.h"

namespace draftsmith::data {
namespace {

// Returns the text that the case's template makes of its messages; "refused" if it makes none.
std::string rendered(const nlohmann::ordered_json& one) {
  try {
    const ChatTemplate chat(one["template"], one["tokens"], "case");
    return chat.render(one["messages"], one["prompt"]);
  } catch (const UserError&) {
    return "refused";
  }
}

TEST(ChatParity, TextsEqualThoseOfTransformers) {
  if (!model::TransformersReference::available()) GTEST_SKIP() << "no .venv-peers (tools/setup --with-peers)";
  const model::TransformersReference reference("parity_chat.py");
  const auto cases = nlohmann::ordered_json::parse(read_file(reference.root() / "cases.json"));
  ASSERT_GT(cases.size(), 100U);
  for (const auto& one : cases) {
    const std::string wanted = one["text"].is_string() ? one["text"].get<std::string>() : "refused";
    // Lists have no text here, although Python writes them; templates in use print them by tojson.
    const bool prints_list = one["template"].get<std::string>().ends_with("not printable");
    EXPECT_EQ(rendered(one), prints_list ? "refused" : wanted) << one["template"] << "\n" << one["messages"];
  }
}

}  // namespace
}  // namespace draftsmith::data
