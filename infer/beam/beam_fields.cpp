#include "infer/beam/beam_fields.h"

#include "infer/beam/hypotheses.h"

namespace draftsmith::infer {

using O = DecodeOptions;

void add_beam_options(Fields<DecodeOptions>& fields) {
  const ReadBy beam{"method", {"beam"}};
  std::vector<std::string> stoppings = early_stoppings().names();
  stoppings.insert(stoppings.begin(), "");  // the model's own
  fields
      .add("num_beams", &O::num_beams, GridKey::kList, beam, Label{"beams"}, AlwaysNamed{}, Range{1, 256},
           "Beams of the method beam, as Transformers has it. Default: the model's own setting if above 1, else 4 (in "
           "suites always 4).")
      .add("length_penalty", &O::length_penalty, GridKey::kList, beam, Label{"LP"}, Range{-100, 100},
           UnnamedIf<O>{[](const O& o) { return o.length_penalty.value_or(1) == 1; }},
           "Beam search orders outputs by (sum of log p) / tokens^length_penalty: above 0 favours long ones. Default: "
           "the model's own setting, else 1 (in suites always 1).")
      .add("early_stopping", &O::early_stopping, GridKey::kList, beam,
           UnnamedIf<O>{[](const O& o) { return o.early_stopping.empty() || o.early_stopping == "false"; }},
           Choices(std::move(stoppings)),
           "When beam search ends with as many finished outputs as beams: true at once; false when the best running "
           "beam scores worse at its present length; never when it would score worse at the length limit too. Default: "
           "the model's own setting, else false (in suites always false).")
      .add("n_best", &O::n_best, beam, Range{1, 256},
           "Outputs of beam search for each input, best first; at most num_beams. --json gives their scores.");
}

void check_beam_options(const DecodeOptions& options, const std::string& where, Problems& problems) {
  if (!options.searches_beams() || options.num_samples == 1) return;
  problems.add({.where = where,
                .what = "method beam samples nothing",
                .expected = "num_samples 1 or none",
                .found = "num_samples " + std::to_string(options.num_samples),
                .hint = "for several outputs of an input, use n_best"});
}

}  // namespace draftsmith::infer
