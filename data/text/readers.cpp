#include "data/text/readers.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/signals.h"
#include "base/utf8.h"

namespace draftsmith::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

LineReader::LineReader(const std::filesystem::path& file) : file_(file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UserError({file.string(), "is a directory", "a text file", "", ""});
  }
  owned_ = std::make_unique<std::ifstream>(file, std::ios::binary);
  input_ = owned_.get();
  if (!*input_) {
    throw UserError({file.string(), "cannot be read", "a readable text file", "", ""});
  }
}

LineReader::LineReader(std::istream& stream, const std::string& name) : file_(name), input_(&stream) {}

LineReader open_lines(const std::string& file) {
  return file == "-" ? LineReader(std::cin, "standard input") : LineReader(std::filesystem::path(file));
}

bool LineReader::next(std::string& line) {
  work_point();
  if (!std::getline(*input_, line)) {
    // A directory or a closed file as standard input sets no flag of std::cin.
    if (input_->bad() || (input_ == &std::cin && std::ferror(stdin) != 0))
      throw UserError({file_.string(), "reading failed", "", "", ""});
    return false;
  }
  if (++line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

std::string LineReader::where() const {
  return file_.string() + ":" + std::to_string(line_);
}

int64_t count_lines(const std::filesystem::path& file) {
  std::ifstream input(file, std::ios::binary);
  int64_t lines = 0;
  for (std::string line; std::getline(input, line);) ++lines;
  return lines;
}

void throw_invalid_utf8(const std::string& where, const std::string& line, size_t at) {
  throw UserError(Problem{where, "invalid UTF-8", "text in UTF-8",
                          fmt::format("byte 0x{:02X} at byte {} of the line", static_cast<uint8_t>(line[at]), at + 1),
                          "convert the file (iconv -f latin1 -t utf8), or choose the policy drop for invalid UTF-8"});
}

Fields<TextPolicies> TextPolicies::fields() {
  return Fields<TextPolicies>("text policies")
      .add("invalid_utf8", &TextPolicies::invalid_utf8, Choices{"error", "drop"},
           "What to do with an example that is not valid UTF-8: stop, or drop it.")
      .add("empty", &TextPolicies::empty, Choices{"error", "drop", "keep"},
           "What to do with an example of which one side is empty or white space only.");
}

ExampleStream::ExampleStream(const std::vector<std::filesystem::path>& files, const TextPolicies& policies,
                             Format format, const std::filesystem::path& also)
    : policies_(policies), format_(std::move(format)), files_(files) {
  throw_problems_of(validate_options<TextPolicies>, policies, "text policies");
  for (const std::filesystem::path& file : files) lines_.emplace_back(file);
  if (!also.empty()) files_.push_back(also);
}

bool ExampleStream::next(Example& example) {
  while (format_(*this, example)) {
    if (admit_utf8(example) && admit_empty(example)) return true;
  }
  return false;
}

bool ExampleStream::admit_utf8(const std::string& where, const std::string& text) {
  const std::optional<size_t> bad = invalid_utf8_offset(text);
  if (!bad) return true;
  if (policies_.invalid_utf8 == "error") throw_invalid_utf8(where, text, *bad);
  ++counts_["dropped: invalid UTF-8"];
  return false;
}

bool ExampleStream::admit_utf8(const Example& example) {
  const std::string& target_where = example.target_where.empty() ? example.where : example.target_where;
  return admit_utf8(example.where, example.source) &&
         std::ranges::all_of(example.targets, [&](const auto& target) { return admit_utf8(target_where, target); });
}

bool ExampleStream::admit_empty(const Example& example) {
  const bool empty_source = example.has_source && is_blank(example.source);
  const bool prompt_alone = example.from_template && example.targets.front().empty();  // of a chat
  if (!empty_source && (prompt_alone || !std::ranges::all_of(example.targets, is_blank))) return true;
  if (policies_.empty == "error") {
    throw UserError({empty_source || example.target_where.empty() ? example.where : example.target_where,
                     empty_source ? "empty source" : "empty target", "text on both sides", "",
                     "choose the policy drop or keep for empty lines"});
  }
  ++counts_[policies_.empty == "drop" ? "dropped: empty" : "kept: empty"];
  return policies_.empty == "keep";
}

void ExampleStream::drop_empty(const Problem& problem) {
  if (policies_.empty == "error") throw UserError(problem);
  ++counts_["dropped: empty"];
}

namespace {

bool read_pair(ExampleStream& stream, Example& example) {
  example.targets.resize(1);
  LineReader& sources = stream.lines(0);
  LineReader& targets = stream.lines(1);
  const bool source = sources.next(example.source);
  const bool target = targets.next(example.targets[0]);
  example.where = sources.where();
  example.target_where = targets.where();
  if (source == target) return source;
  throw UserError({fmt::format("{} and {}", stream.files()[0].string(), stream.files()[1].string()),
                   "unequal numbers of lines", "line i of one to be the translation of line i of the other",
                   fmt::format("no line {} in one of them", std::max(sources.line(), targets.line())),
                   "check that the files belong together"});
}

bool read_document(LineReader& lines, const std::string& separator, Example& example) {
  example.source.clear();
  example.has_source = false;
  example.targets.assign(1, std::string());
  std::string& text = example.targets[0];
  const bool at_start = lines.line() == 0;
  bool any = false;
  std::string line;
  while (lines.next(line)) {
    const bool first_line = at_start && lines.line() == 1;
    if (!separator.empty() && line == separator) {
      if (first_line) continue;  // a separator at the beginning ends no document
      if (!any) example.where = lines.where();
      return true;
    }
    if (!any) example.where = lines.where();
    if (any) text += '\n';
    text += line;
    any = true;
    if (separator.empty()) return true;
  }
  return any;
}

[[noreturn]] void throw_missing_field(const nlohmann::json& object, const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const auto& [key, value] : object.items()) known.push_back(key);
  const std::string close = nearest(name, known);
  throw UserError({where, "no field \"" + name + "\"", "a string or a list of strings under that name on every line",
                   fmt::format("fields {}", fmt::join(known, ", ")),
                   close.empty() ? "" : "did you mean \"" + close + "\"?"});
}

// Returns the element of a list that "turns[0]" names, or nullptr for a name without an index.
const nlohmann::json* element_of(const nlohmann::json& object, const std::string& name, const std::string& where) {
  const size_t bracket = name.find('[');
  if (bracket == std::string::npos || !name.ends_with(']')) return nullptr;
  const auto list = object.find(name.substr(0, bracket));
  if (list == object.end()) throw_missing_field(object, name.substr(0, bracket), where);
  size_t index = 0;
  const char* end = name.data() + name.size() - 1;
  const bool number = std::from_chars(name.data() + bracket + 1, end, index).ptr == end;
  if (number && list->is_array() && index < list->size() && (*list)[index].is_string()) return &(*list)[index];
  throw UserError({where, "no text \"" + name + "\"", "a list of strings with such an element", brief(*list), ""});
}

std::string text_field(const nlohmann::json& object, const std::string& name, const JsonFields& fields,
                       const std::string& where) {
  if (const nlohmann::json* text = element_of(object, name, where)) return text->get<std::string>();
  const auto found = object.find(name);
  if (found == object.end()) throw_missing_field(object, name, where);
  if (found->is_string()) return found->get<std::string>();
  const auto is_string = [](const nlohmann::json& element) { return element.is_string(); };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), is_string)) {
    throw UserError(
        {where, "field \"" + name + "\" is not text", "a string or a list of strings", found->type_name(), ""});
  }
  return fmt::format("{}", fmt::join(found->get<std::vector<std::string>>(), fields.separator));
}

bool read_object(ExampleStream& stream, const JsonFields& fields, Example& example) {
  // Applies the policies for invalid UTF-8 and blank lines before parsing, because JSON must be valid UTF-8.
  for (std::string line; stream.lines().next(line);) {
    const std::string where = stream.lines().where();
    if (!stream.admit_utf8(where, line)) continue;
    if (is_blank(line)) {
      stream.drop_empty(
          {where, "blank line", "a JSON object on every line", "", "choose the policy drop for empty lines"});
      continue;
    }
    const nlohmann::json object = parse_object_line(line, where);
    const std::vector<std::string>& wanted = fields.categories;
    if (!wanted.empty() &&
        std::find(wanted.begin(), wanted.end(), text_field(object, "category", fields, where)) == wanted.end()) {
      continue;
    }
    example.where = where;
    example.has_source = !fields.source.empty();
    example.source = fields.source.empty() ? std::string() : text_field(object, fields.source, fields, where);
    example.targets.clear();
    for (const std::string& field : fields.targets) example.targets.push_back(text_field(object, field, fields, where));
    return true;
  }
  return false;
}

}  // namespace

nlohmann::json parse_object_line(const std::string& line, const std::string& where) {
  nlohmann::json object = parse_json(line, where);
  if (object.is_object()) return object;
  throw UserError({where, "not a JSON object", "one JSON object a line", object.type_name(), ""});
}

std::unique_ptr<ExampleStream> open_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                                             const TextPolicies& policies) {
  return std::make_unique<ExampleStream>(std::vector{source, target}, policies, read_pair);
}

std::unique_ptr<ExampleStream> open_jsonl(const std::filesystem::path& file, const JsonFields& fields,
                                          const TextPolicies& policies) {
  if (fields.targets.empty()) {
    throw UserError(
        {file.string(), "no target field named", "", "", "name the fields that hold the target text, e.g. summary"});
  }
  const auto read = [fields](ExampleStream& stream, Example& example) { return read_object(stream, fields, example); };
  return std::make_unique<ExampleStream>(std::vector{file}, policies, read);
}

std::unique_ptr<ExampleStream> open_plain_text(const std::filesystem::path& file, const std::string& separator,
                                               const TextPolicies& policies) {
  const auto read = [separator](ExampleStream& stream, Example& example) {
    return read_document(stream.lines(), separator, example);
  };
  return std::make_unique<ExampleStream>(std::vector{file}, policies, read);
}

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  std::string line;
  while (reader.next(line)) {
    if (const std::optional<size_t> bad = invalid_utf8_offset(line)) throw_invalid_utf8(reader.where(), line, *bad);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> read_lines(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> lines;
  for (const std::filesystem::path& file : files) std::ranges::move(read_lines(file), std::back_inserter(lines));
  return lines;
}

std::vector<Example> read_all(ExampleStream& stream) {
  std::vector<Example> examples;
  for (Example example; stream.next(example);) examples.push_back(example);
  return examples;
}

}  // namespace draftsmith::data
