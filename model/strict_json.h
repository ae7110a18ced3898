// JSON from files that nobody vouches for: parsed with limits on size and depth, duplicate keys and bad UTF-8 refused,
// and values read with their type and range checked. Every problem is a Problem that names the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace draftsmith::model {

// Parses a JSON text. `where` names it in errors.
// Errors (UserError): syntax, invalid UTF-8, more than 64 levels of nesting, a key twice in one object.
nlohmann::json parse_json(std::string_view text, const std::string& where);

// Parses a JSON file of at most 16 MiB whose top level is an object.
nlohmann::json read_json_object(const std::filesystem::path& file);

// A string for messages: control characters and bytes outside ASCII escaped, cut at 120 characters.
std::string printable(std::string_view text);

// Reads typed values out of one object and collects what is wrong with them. A key that is absent or null is the
// fallback.
class ObjectReader {
 public:
  // All three must outlive the reader.
  ObjectReader(const nlohmann::json& object, std::string where, Problems& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {}

  bool has(const std::string& key) const;  // present and not null
  const nlohmann::json& at(const std::string& key) const;
  const std::string& where() const { return where_; }

  int64_t integer(const std::string& key, int64_t fallback, int64_t least, int64_t most) const;
  // Like integer(), but absence is a problem.
  int64_t required_integer(const std::string& key, int64_t least, int64_t most) const;
  std::optional<int64_t> optional_integer(const std::string& key, int64_t least, int64_t most) const;
  double number(const std::string& key, double fallback, double least, double most) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  // One integer or a list of integers.
  std::vector<int64_t> integers(const std::string& key, int64_t least, int64_t most) const;

  // Records a problem with a key's value.
  void wrong(const std::string& key, const std::string& what, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;
};

}  // namespace draftsmith::model
