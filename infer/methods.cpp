#include "infer/methods.h"

#include <algorithm>

namespace draftsmith::infer {

const std::vector<Method>& decoding_methods() {
  using enum DraftSource;
  using enum Algorithm;
  using enum Sampling;
  // name, drafts from, algorithm, window rule, acceptance rule, sampling, lossless without an acceptance rule
  static const std::vector<Method> kMethods = {
      {"greedy", kNone, kPlain, "", "", kNever, true},
      {"sample", kNone, kPlain, "", "", kByDefault, true},
      {"speculative", kDrafter, kDraftVerify, "fixed", "rejection", kByDefault},
      {"assisted", kDrafter, kDraftVerify, "dynamic", "exact", kNever},
      {"bild", kDrafter, kDraftVerify, "fallback", "rollback", kOnRequest},
      {"tandem", kTandem, kDraftVerify, "fixed", "accept_all", kOnRequest},
      {"tandem-speed", kTandem, kDraftVerify, "fixed", "rejection", kOnRequest},
      {"early-exit", kOwnLayers, kDraftVerify, "fallback", "rollback", kOnRequest},
      {"calm", kNone, kCalm, "", "", kOnRequest, false},
      {"ppd", kNone, kPpd, "", "", kNever, true}};
  return kMethods;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method& method : decoding_methods()) names.push_back(method.name);
  return names;
}

const Method* find_method(const std::string& name) {
  const auto& methods = decoding_methods();
  const auto found = std::find_if(methods.begin(), methods.end(), [&](const Method& one) { return one.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

const Method& baseline_method(double temperature) {
  return *find_method(temperature == 0 ? "greedy" : "sample");
}

}  // namespace draftsmith::infer
