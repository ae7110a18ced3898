// The list of objectives.
#include "train/objectives/cross_entropy.h"
#include "train/objectives/distill.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

Fields<ObjectiveOptions> ObjectiveOptions::fields() {
  return Fields<ObjectiveOptions>("training objective")
      .add("name", &ObjectiveOptions::name, Choices{"cross_entropy", "distill"}, "What training minimises.")
      .add("cross_entropy", &ObjectiveOptions::cross_entropy, "Options of cross_entropy.")
      .add("distill", &ObjectiveOptions::distill, "Options of distill.");
}

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs) {
  Problems problems;
  validate_options(options, "objective", problems);
  problems.throw_if_any();
  if (options.name == "distill") return std::make_unique<Distill>(options.distill, inputs);
  return std::make_unique<CrossEntropy>(options.cross_entropy);
}

}  // namespace draftsmith::train
