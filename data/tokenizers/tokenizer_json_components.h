// Parses the components of a tokenizer.json: normalizer, pre-tokenizer, post-processor and decoder. Each function takes
// the JSON of a component and its place for messages, and throws a UserError that names an unsupported component.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/token_decoder.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

[[noreturn]] void refuse(Problem problem);

// Checked access to the members of a JSON object. Null counts as missing. A missing member without a fallback and a
// member of another type are errors (UserError).
class JsonComponent {
 public:
  // Both must outlive this. Errors: UserError if the value is not an object.
  JsonComponent(const nlohmann::json& object, const std::string& where);

  const nlohmann::json& need(const char* key) const;
  bool flag(const char* key, std::optional<bool> fallback = std::nullopt) const;
  std::string text(const char* key, std::optional<std::string> fallback = std::nullopt) const;
  // Returns an integer from 0 to `max`.
  int64_t number(const char* key, int64_t max) const;
  // Returns the component's "type".
  std::string type() const { return text("type"); }
  // Returns the list of components of a Sequence.
  const nlohmann::json& list(const char* key) const;
  [[noreturn]] void unsupported(const std::string& kind, const std::string& known) const;

 private:
  const nlohmann::json* find(const char* key) const;
  [[noreturn]] void wrong(const char* key, const std::string& expected, const nlohmann::json& found) const;

  const nlohmann::json& object_;
  const std::string& where_;
};

void parse_normalizer(const nlohmann::json& value, const std::string& where, TextNormalizer& normalizer);

// Returns whether the component makes words byte-level.
bool parse_pre_tokenizer(const nlohmann::json& value, const std::string& where, PreTokenizer& pre_tokenizer);

void parse_post_processor(const nlohmann::json& value, const std::string& where, TextFrame& frame);

// Null is an error, because it means pieces separated by blanks.
void parse_decoder(const nlohmann::json& value, const std::string& where, TokenDecoder& decoder);

}  // namespace draftsmith::data
