// Chat templates give the text of Transformers' apply_chat_template: styles in use with tools and documents,
// and what templates get beyond plain Jinja.
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "data/chat/chat_template.h"
#include "tests/parity/transformers_reference.h"

namespace draftsmith::data {
namespace {

// Returns the text that a template makes of the case's conversation; "refused" if it makes none.
std::string rendered(std::optional<ChatTemplate>& chat, const nlohmann::ordered_json& one) {
  try {
    if (!chat) chat.emplace(one["template"], one["tokens"], "case");
    return chat->render(one["conversation"], one["prompt"]);
  } catch (const UserError&) {
    return "refused";
  }
}

TEST(ChatParity, TextsEqualThoseOfTransformers) {
  if (!model::TransformersReference::available()) GTEST_SKIP() << "no .venv-peers (tools/setup --with-peers)";
  const model::TransformersReference reference("parity_chat.py");
  const auto cases = nlohmann::ordered_json::parse(read_file(reference.root() / "cases.json"));
  ASSERT_EQ(cases.size(), 900U);
  std::map<std::string, std::optional<ChatTemplate>> templates;
  for (const auto& one : cases) {
    const std::string wanted = one["text"].is_string() ? one["text"].get<std::string>() : "refused";
    EXPECT_EQ(rendered(templates[one["template"]], one), wanted) << one["template"] << "\n" << one["conversation"];
  }
}

}  // namespace
}  // namespace draftsmith::data
