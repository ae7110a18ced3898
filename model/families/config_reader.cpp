#include "model/families/config_reader.h"

#include <fmt/format.h>

namespace draftsmith::model {

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where, Problems& problems)
    : JsonReader(object, where, problems), object_(object), where_(std::move(where)), problems_(problems) {}

std::optional<int64_t> ConfigReader::optional_int(const std::string& key, IntRange range) {
  if (!has(key)) {
    return std::nullopt;
  }
  return get_int(key, range, range.min);
}

double ConfigReader::number(const std::string& key, double fallback, double least, double most) {
  const double value = get_double(key, fallback);
  if (value < least || value > most) {
    wrong(key, "is out of range", fmt::format("a number in {} to {}", least, most));
    return fallback;
  }
  return value;
}

void ConfigReader::wrong(const std::string& key, const std::string& what, const std::string& expected) {
  problems_.add({where_, fmt::format("'{}' {}", key, what), expected, has(key) ? brief(at(key)) : "nothing", ""});
}

}  // namespace draftsmith::model
