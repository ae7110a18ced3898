#include "recipes/validation_file.h"

#include "base/json.h"

namespace draftsmith::recipes {

std::optional<ValidationMeasures> load_validation(const std::filesystem::path& stage) {
  const std::filesystem::path file = stage / "validation.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const nlohmann::json summary = load_json(file);
  const nlohmann::json measures = summary.is_object() ? summary.value("model", nlohmann::json()) : summary;
  Problems problems;
  JsonReader reader(measures, file.string(), problems);
  const ValidationMeasures found{.loss = reader.get_double("loss"), .accuracy = reader.get_double("accuracy")};
  problems.throw_if_any();
  return found;
}

}  // namespace draftsmith::recipes
