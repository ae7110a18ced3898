// Values of config.json and generation_config.json with their ranges checked: base's JsonReader with additions for
// model directories.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace draftsmith::model {

class ConfigReader : public JsonReader {
 public:
  // `object` and `problems` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where, Problems& problems);

  // Returns a reader of an object inside this one; its problems go to the same list.
  ConfigReader within(const nlohmann::json& object) const { return {object, where_, problems_}; }
  // Returns the value of a key that has() found.
  const nlohmann::json& at(const std::string& key) const { return object_.at(key); }
  std::optional<int64_t> optional_int(const std::string& key, IntRange range);
  // Returns a number in [least, most]; the fallback if absent or null.
  double number(const std::string& key, double fallback, double least, double most);
  // Records a problem with the value of a key.
  void wrong(const std::string& key, const std::string& what, const std::string& expected);

 private:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;
};

}  // namespace draftsmith::model
