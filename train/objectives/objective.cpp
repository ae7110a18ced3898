// The list of objectives, and their options.

#include "train/objectives/objective.h"

#include "base/registry.h"

namespace draftsmith::train {
namespace {

const Registry<ObjectiveEntry>& objectives() {
  static const Registry<ObjectiveEntry> kObjectives("objective", {cross_entropy_objective(), distill_objective()});
  return kObjectives;
}

}  // namespace

Fields<ObjectiveOptions> ObjectiveOptions::fields() {
  return Fields<ObjectiveOptions>("training objective")
      .add("name", &ObjectiveOptions::name, Choices(objectives().names()), "What training minimises.")
      .add("cross_entropy", &ObjectiveOptions::cross_entropy, "Options of cross_entropy.")
      .add("distill", &ObjectiveOptions::distill, "Options of distill.");
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs) {
  Problems problems;
  validate_options(options, "objective", problems);
  problems.throw_if_any();
  return objectives().at(options.name).make(options, inputs);
}

bool needs_teacher(const ObjectiveOptions& options) {
  return objectives().at(options.name).needs_teacher;
}

}  // namespace draftsmith::train
