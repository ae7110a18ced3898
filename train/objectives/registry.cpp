// The explicit list of objectives.
#include <array>

#include "train/objectives/cross_entropy.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Objective> (*make)(const ObjectiveOptions&);
};

constexpr std::array kObjectives{
    Entry{"cross_entropy",
          [](const ObjectiveOptions& options) -> std::unique_ptr<Objective> {
            return std::make_unique<CrossEntropy>(options.cross_entropy);
          }},
};

std::vector<std::string> known() {
  std::vector<std::string> names;
  for (const Entry& entry : kObjectives) names.emplace_back(entry.name);
  return names;
}

}  // namespace

Fields<ObjectiveOptions> ObjectiveOptions::fields() {
  return Fields<ObjectiveOptions>("training objective")
      .add("name", &ObjectiveOptions::name, Choices(known()), "What training minimises.")
      .add("cross_entropy", &ObjectiveOptions::cross_entropy, "Options of cross_entropy.");
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options) {
  Problems problems;
  validate_options(options, "objective", problems);
  problems.throw_if_any();
  const auto found = std::find_if(kObjectives.begin(), kObjectives.end(),
                                  [&](const Entry& entry) { return entry.name == options.name; });
  return found->make(options);
}

}  // namespace draftsmith::train
