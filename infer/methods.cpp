#include "infer/methods.h"

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

}  // namespace draftsmith::infer
