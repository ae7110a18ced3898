// The explicit list of objectives.
#include <array>

#include "train/objectives/cross_entropy.h"
#include "train/objectives/distill.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Objective> (*make)(const ObjectiveOptions&, const ObjectiveInputs&);
};

constexpr std::array kObjectives{
    Entry{"cross_entropy",
          [](const ObjectiveOptions& options, const ObjectiveInputs&) -> std::unique_ptr<Objective> {
            return std::make_unique<CrossEntropy>(options.cross_entropy);
          }},
    Entry{"distill",
          [](const ObjectiveOptions& options, const ObjectiveInputs& inputs) -> std::unique_ptr<Objective> {
            return std::make_unique<Distill>(options.distill, inputs);
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
      .add("cross_entropy", &ObjectiveOptions::cross_entropy, "Options of cross_entropy.")
      .add("distill", &ObjectiveOptions::distill, "Options of distill.");
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs) {
  Problems problems;
  validate_options(options, "objective", problems);
  problems.throw_if_any();
  const auto found = std::find_if(kObjectives.begin(), kObjectives.end(),
                                  [&](const Entry& entry) { return entry.name == options.name; });
  return found->make(options, inputs);
}

}  // namespace draftsmith::train
