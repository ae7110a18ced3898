#include "infer/decode_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::infer {

const Registry<Method>& decoding_methods() {
  using enum DraftSource;
  using enum Algorithm;
  using enum Sampling;
  // name, drafts from, algorithm, window rule, acceptance rule, sampling, lossless without an acceptance rule
  static const Registry<Method> kMethods("method",
                                         {{"greedy", kNone, kPlain, "", "", kNever, true},
                                          {"sample", kNone, kPlain, "", "", kByDefault, true},
                                          {"beam", kNone, kBeam, "", "", kNever, false},
                                          {"speculative", kDrafter, kDraftVerify, "fixed", "rejection", kByDefault},
                                          {"assisted", kDrafter, kDraftVerify, "dynamic", "exact", kNever},
                                          {"bild", kDrafter, kDraftVerify, "fallback", "rollback", kOnRequest},
                                          {"tandem", kTandem, kDraftVerify, "fixed", "accept_all", kOnRequest},
                                          {"tandem-speed", kTandem, kDraftVerify, "fixed", "rejection", kOnRequest},
                                          {"early-exit", kOwnLayers, kDraftVerify, "fallback", "rollback", kOnRequest},
                                          {"calm", kNone, kCalm, "", "", kOnRequest, false},
                                          {"ppd", kNone, kPpd, "", "", kOnRequest, true}});
  return kMethods;
}

const Method& baseline_method(double temperature) {
  return decoding_methods().at(temperature == 0 ? "greedy" : "sample");
}

const Method& DecodeOptions::method_info() const {
  static const Method kUnknown;
  const Method* found = decoding_methods().find(method);
  return found == nullptr ? kUnknown : *found;
}

std::string DecodeOptions::window_rule_name() const {
  return drafts() && !window_rule.empty() ? window_rule : method_info().window_rule;
}

std::string DecodeOptions::acceptance_name() const {
  return drafts() && !acceptance.empty() ? acceptance : method_info().acceptance;
}

bool DecodeOptions::reads(const Field& field) const {
  if (!field.read_by) return true;
  const auto& [part, names] = *field.read_by;
  const std::string in_use = part == "window_rule"  ? window_rule_name()
                             : part == "acceptance" ? acceptance_name()
                                                    : method;
  return std::find(names.begin(), names.end(), in_use) != names.end();
}

std::string readers_of(const Field& field) {
  return fmt::format("{} {}", field.read_by->part, fmt::join(field.read_by->names, ", "));
}

}  // namespace draftsmith::infer
