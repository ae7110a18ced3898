#include "recipes/stages/provenance.h"

namespace draftsmith::recipes {

std::string input_name(const StageContext& run, const std::string& option, const std::filesystem::path& path) {
  return run.options.contains(option) ? run.options.at(option).get<std::string>() : path.string();
}

}  // namespace draftsmith::recipes
