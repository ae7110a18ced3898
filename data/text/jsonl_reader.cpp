#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/text/line_reader.h"
#include "data/text/policied_stream.h"
#include "data/text/readers.h"

namespace draftsmith::data {

namespace {

class JsonlStream : public PoliciedStream {
 public:
  JsonlStream(const std::filesystem::path& file, JsonFields fields, const TextPolicies& policies)
      : PoliciedStream(policies), lines_(file), fields_(std::move(fields)) {
    counts_.byte_order_marks = lines_.had_byte_order_mark() ? 1 : 0;
    if (fields_.targets.empty()) {
      throw UserError({.where = file.string(),
                       .what = "no target field named",
                       .hint = "name the fields that hold the target text, e.g. summary"});
    }
  }

  std::vector<std::filesystem::path> files() const override { return {lines_.file()}; }

 protected:
  bool fetch(Example& example) override {
    std::string line;
    // Applies the policies for invalid UTF-8 and blank lines before parsing, because JSON must be valid UTF-8.
    while (lines_.next(line)) {
      counts_.crlf_lines = lines_.crlf_lines();
      bool replaced = false;
      if (!admit_text(lines_.where(), line, replaced)) {
        ++counts_.dropped_invalid_utf8;
        continue;
      }
      if (is_blank(line)) {
        reject_blank_line();
        continue;
      }
      const nlohmann::json object = parse_object(line);
      if (!is_wanted(object)) continue;
      if (replaced) ++counts_.replaced_invalid_utf8;
      read_fields(object, example);
      return true;
    }
    return false;
  }

  std::string where(const Example& example, size_t) const override { return example.where; }

 private:
  void reject_blank_line() {
    if (policies_.empty == "error") {
      throw UserError({.where = lines_.where(),
                       .what = "blank line",
                       .expected = "a JSON object on every line",
                       .hint = "choose the policy drop for empty lines"});
    }
    ++counts_.dropped_empty;
  }

  nlohmann::json parse_object(const std::string& line) const {
    nlohmann::json object = parse_json(line, lines_.where());
    if (!object.is_object()) {
      throw UserError({.where = lines_.where(),
                       .what = "not a JSON object",
                       .expected = "one JSON object a line",
                       .found = object.type_name()});
    }
    return object;
  }

  bool is_wanted(const nlohmann::json& object) const {
    const std::vector<std::string>& wanted = fields_.categories;
    if (wanted.empty()) return true;
    return std::find(wanted.begin(), wanted.end(), text_field(object, "category")) != wanted.end();
  }

  void read_fields(const nlohmann::json& object, Example& example) const {
    example.where = lines_.where();
    example.has_source = !fields_.source.empty();
    example.source = fields_.source.empty() ? std::string() : text_field(object, fields_.source);
    example.targets.clear();
    for (const std::string& field : fields_.targets) example.targets.push_back(text_field(object, field));
  }

  // Returns the element of a list that "turns[0]" names, or nullptr for a name without an index.
  const nlohmann::json* element(const nlohmann::json& object, const std::string& name) const {
    const size_t bracket = name.find('[');
    if (bracket == std::string::npos || !name.ends_with(']')) return nullptr;
    const auto list = object.find(name.substr(0, bracket));
    if (list == object.end()) throw_missing(object, name.substr(0, bracket));
    size_t index = 0;
    const char* end = name.data() + name.size() - 1;
    const bool number = std::from_chars(name.data() + bracket + 1, end, index).ptr == end;
    if (number && list->is_array() && index < list->size() && (*list)[index].is_string()) return &(*list)[index];
    throw UserError({.where = lines_.where(),
                     .what = "no text \"" + name + "\"",
                     .expected = "a list of strings with such an element",
                     .found = brief(*list)});
  }

  std::string text_field(const nlohmann::json& object, const std::string& name) const {
    if (const nlohmann::json* text = element(object, name)) return text->get<std::string>();
    const auto found = object.find(name);
    if (found == object.end()) throw_missing(object, name);
    if (found->is_string()) return found->get<std::string>();
    const auto is_string = [](const nlohmann::json& element) { return element.is_string(); };
    if (!found->is_array() || !std::all_of(found->begin(), found->end(), is_string)) {
      throw UserError({.where = lines_.where(),
                       .what = "field \"" + name + "\" is not text",
                       .expected = "a string or a list of strings",
                       .found = found->type_name()});
    }
    std::string joined;
    for (size_t i = 0; i < found->size(); ++i) {
      if (i > 0) joined += fields_.separator;
      joined += (*found)[i].get_ref<const std::string&>();
    }
    return joined;
  }

  [[noreturn]] void throw_missing(const nlohmann::json& object, const std::string& name) const {
    std::vector<std::string> known;
    std::string names;
    for (const auto& [key, value] : object.items()) {
      known.push_back(key);
      names += (names.empty() ? "" : ", ") + key;
    }
    const std::string close = nearest(name, known);
    throw UserError({.where = lines_.where(),
                     .what = "no field \"" + name + "\"",
                     .expected = "a string or a list of strings under that name on every line",
                     .found = "fields " + names,
                     .hint = close.empty() ? "" : "did you mean \"" + close + "\"?"});
  }

  LineReader lines_;
  JsonFields fields_;
};

}  // namespace

std::unique_ptr<ExampleStream> open_jsonl(const std::filesystem::path& file, const JsonFields& fields,
                                          const TextPolicies& policies) {
  return std::make_unique<JsonlStream>(file, fields, policies);
}

}  // namespace draftsmith::data
