#include "evaluate/report/page_environment.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/table.h"
#include "evaluate/report/key_words.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr std::array kWords{KeyWords{"draftsmith", "Draftsmith"},
                            KeyWords{"libtorch", "LibTorch"},
                            KeyWords{"cpu", "processor"},
                            KeyWords{"memory_bytes", "memory"},
                            KeyWords{"date", "measured"},
                            KeyWords{"drafters", "drafter"},
                            KeyWords{"parameters", "parameters of"},
                            KeyWords{"dtype", "number type"},
                            KeyWords{"drafter_dtypes", "number type of"}};

// Returns a number with commas between thousands.
std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = std::ssize(digits) - 3; place > (number < 0 ? 1 : 0); place -= 3) {
    digits.insert(static_cast<size_t>(place), ",");
  }
  return digits;
}

std::string shown_value(const std::string& key, const ordered_json& value) {
  if (value.is_null()) return "not recorded";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_integer()) return value.dump();
  if (key == "memory_bytes") return fmt::format("{:.1f} GB", value.get<double>() / 1e9);
  return with_commas(value.get<int64_t>());
}

std::string environment_entry(const std::string& key, const std::string& words, const ordered_json& value) {
  return fmt::format("<dt title=\"{}\">{}</dt><dd>{}</dd>\n", escape_html(key), escape_html(words),
                     escape_html(shown_value(key, value)));
}

// Returns an option without the values that say nothing: empty lists and texts, false and null.
ordered_json given_only(const ordered_json& options) {
  if (!options.is_structured()) return options;
  ordered_json given = options.is_array() ? ordered_json::array() : ordered_json::object();
  for (const auto& [key, value] : options.items()) {
    ordered_json kept = given_only(value);
    if (kept.is_null() || kept == false || kept == "" || (kept.is_structured() && kept.empty())) continue;
    options.is_array() ? given.push_back(std::move(kept)) : void(given[key] = std::move(kept));
  }
  return given;
}

std::string options_html(const Results& results) {
  const ordered_json given = given_only(results.options);
  if (given.empty()) return "";
  const std::string text = given.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  return "<details><summary>All options of the suite</summary><pre>" + escape_html(text) + "</pre></details>\n";
}

}  // namespace

std::string environment_html(const Results& results) {
  std::string html = "<h2 id=\"environment\">How it was measured</h2>\n";
  const std::string command = results.environment_text("command").value_or("");
  if (!command.empty()) html += "<pre class=\"command\">" + escape_html(command) + "</pre>\n";
  html += "<dl>\n";
  for (const auto& [key, value] : results.environment.items()) {
    if (key == "command") continue;
    if (!value.is_object()) {
      html += environment_entry(key, words_of(kWords, key), value);
      continue;
    }
    for (const auto& [name, one] : value.items())
      html += environment_entry(key + "." + name, words_of(kWords, key) + " " + name, one);
  }
  return html + "</dl>\n" + options_html(results);
}

}  // namespace draftsmith::evaluate
