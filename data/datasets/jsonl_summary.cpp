#include "data/datasets/jsonl_summary.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/text/readers.h"

namespace draftsmith::data {

namespace {

using nlohmann::json;

// Beginning of the prompts that SPEED-Bench leaves out for their licence.
constexpr const char* kPlaceholder = "FULL BENCHMARK DATA SHOULD BE FETCHED";

// Fields of a kind of data sets. The first convention whose fields an object has is the one that applies.
struct Convention {
  const char* source;
  const char* reference;  // nullptr: prompts without references
  const char* metric;
};

constexpr std::array<Convention, 16> kConventions{{{"messages", nullptr, "none"},
                                                   {"turns[0]", nullptr, "none"},
                                                   {"dialogue", "summary", "rouge"},
                                                   {"dialogue", "summary1", "rouge"},
                                                   {"article", "highlights", "rouge"},
                                                   {"article", "summary", "rouge"},
                                                   {"document", "summary", "rouge"},
                                                   {"text", "summary", "rouge"},
                                                   {"source", "target", "bleu"},
                                                   {"prompt", nullptr, "none"},
                                                   {"question", nullptr, "none"},
                                                   {"article", nullptr, "none"},
                                                   {"dialogue", nullptr, "none"},
                                                   {"document", nullptr, "none"},
                                                   {"source", nullptr, "none"},
                                                   {"text", nullptr, "none"}}};

// Returns the key of a field: "turns" of "turns[0]".
std::string key_of(const std::string& field) {
  return field.substr(0, field.find('['));
}

// Returns the fields summary1, summary2, ... of an object, for a first one that ends in "1".
std::vector<std::string> numbered_fields(const json& object, const std::string& first) {
  if (!first.ends_with('1')) return {first};
  std::vector<std::string> fields;
  const std::string stem = first.substr(0, first.size() - 1);
  for (int i = 1; object.contains(stem + std::to_string(i)); ++i) fields.push_back(stem + std::to_string(i));
  return fields;
}

void apply_convention(const json& object, JsonlSummary& summary) {
  for (const auto& [key, value] : object.items()) summary.fields.push_back(key);
  for (const Convention& one : kConventions) {
    if (!object.contains(key_of(one.source)) || (one.reference && !object.contains(one.reference))) continue;
    summary.source = one.source;
    summary.metric = one.metric;
    summary.chat = summary.source == "messages";
    if (one.reference) summary.references = numbered_fields(object, one.reference);
    // Lists of sentences are documents and their summaries, not sentences and their translations.
    if (summary.metric == "bleu" && object[one.source].is_array()) summary.metric = "rouge";
    return;
  }
}

json parse_object(const LineReader& lines, const std::string& line) {
  json object = parse_json(line, lines.where());
  if (object.is_object()) return object;
  throw UserError({.where = lines.where(),
                   .what = "not a JSON object",
                   .expected = "one JSON object a line",
                   .found = object.type_name()});
}

void require_fields(const JsonlSummary& summary, const json& object, const std::string& where) {
  std::vector<std::string> fields = summary.references;
  if (!summary.source.empty()) fields.push_back(key_of(summary.source));
  for (const std::string& field : fields) {
    if (object.contains(field) && !object[field].is_null()) continue;
    const bool reference = field != key_of(summary.source);
    throw UserError({.where = where,
                     .what = fmt::format("the line has no {} \"{}\"", reference ? "reference" : "source", field),
                     .expected = "the field on every line, as on the first",
                     .found = "none",
                     .hint = "use the lines before it (limit), or name other fields with `jsonl`"});
  }
}

void count_turns(const json& object, JsonlSummary& summary) {
  if (!object.contains("turns") || !object["turns"].is_array()) return;
  const json& turns = object["turns"];
  if (turns.size() > 1) ++summary.further_turns;
  const bool missing = std::any_of(turns.begin(), turns.end(), [](const json& turn) {
    return turn.is_string() && turn.get_ref<const std::string&>().find(kPlaceholder) != std::string::npos;
  });
  if (missing) ++summary.placeholders;
}

void count_category(const json& object, JsonlSummary& summary) {
  if (!object.contains("category") || !object["category"].is_string()) return;
  const std::string name = object["category"].get<std::string>();
  const auto same = [&](const JsonlCategory& category) { return category.name == name; };
  auto found = std::find_if(summary.categories.begin(), summary.categories.end(), same);
  if (found == summary.categories.end()) found = summary.categories.insert(found, {.name = name});
  ++found->lines;
  if (object.contains("reference")) ++found->with_reference;
}

}  // namespace

JsonlSummary summarize_jsonl(const std::filesystem::path& file) {
  LineReader lines(file);
  JsonlSummary summary;
  for (std::string line; lines.next(line);) {
    if (const auto bad = invalid_utf8_offset(line)) throw_invalid_utf8(lines.where(), line, *bad);
    if (is_blank(line)) continue;
    const json object = parse_object(lines, line);
    if (summary.lines == 0) apply_convention(object, summary);
    require_fields(summary, object, lines.where());
    count_turns(object, summary);
    count_category(object, summary);
    ++summary.lines;
  }
  if (summary.lines > 0) return summary;
  throw UserError({.where = file.string(), .what = "the data set is empty", .expected = "one JSON object a line"});
}

}  // namespace draftsmith::data
