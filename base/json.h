// JSON files with errors that name file and line, limits for untrusted input, and checked getters that collect
// problems.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace draftsmith {

// Reads a JSON file. Throws a UserError with file:line for malformed text, nesting beyond 64 levels, a key given twice
// in one object, and invalid UTF-8.
nlohmann::json load_json(const std::filesystem::path& file, uint64_t max_bytes = 256'000'000);

// Like load_json(), for text in memory. Errors name `source_name` as the file.
nlohmann::json parse_json(std::string_view text, const std::string& source_name);

// Writes a JSON file atomically, indented by two blanks, with a last newline. Infinite and NaN numbers become null.
void write_json(const std::filesystem::path& file, const nlohmann::ordered_json& json);

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

// Reader of the keys of one JSON object. For a missing, mistyped or out-of-range value, a getter adds the problem
// "<where>: '<key>' ..." and returns the fallback. Keys with a fallback may be absent; null counts as absent. `where`
// is the file's name.
class JsonReader {
 public:
  // Adds a problem if `object` is not a JSON object. Both references must outlive the reader.
  JsonReader(const nlohmann::json& object, std::string where, Problems& problems);

  bool has(const std::string& key) const;
  int64_t get_int(const std::string& key, IntRange range = {}, std::optional<int64_t> fallback = std::nullopt);
  double get_double(const std::string& key, std::optional<double> fallback = std::nullopt);
  bool get_bool(const std::string& key, std::optional<bool> fallback = std::nullopt);
  std::string get_string(const std::string& key, std::optional<std::string> fallback = std::nullopt);
  // Reads an integer or a list of integers (Hugging Face's eos_token_id may be either); empty if absent.
  std::vector<int64_t> get_ints(const std::string& key, IntRange range = {});
  // Records a problem with the value of a key.
  void wrong(const std::string& key, const std::string& what, const std::string& expected);

 protected:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;

 private:
  const nlohmann::json* find(const std::string& key, bool required);
};

// Returns a value as error messages show it: compact, at most `width` characters.
std::string brief(const nlohmann::json& value, size_t width = 60);

// JSON has no NaN and no infinity: returns null for a number that is not finite.
nlohmann::ordered_json finite_or_null(double value);
// Returns a number as a text from which exact_number() reads the same bits, NaN and infinity too.
std::string exact_text(double number);
double exact_number(const nlohmann::json& text);

}  // namespace draftsmith
