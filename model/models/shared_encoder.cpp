#include "model/models/shared_encoder.h"

#include <string>

#include "base/error.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"

namespace draftsmith::model {
namespace {

constexpr CompanionRole kSharedRole = {.key = "draftsmith_shared_encoder",
                                       .role = "target",
                                       .reader = "drafter that shares its target's encoder",
                                       .remedy = "",
                                       .require_pair = require_shared_encoder_pair};

void shared_encoder_keys(ConfigKeys& keys, TransformerConfig& config) {
  std::optional<ConfigKeys> object = keys.within(kSharedRole.key);
  if (!object) return;
  object->integer("width", config.shared_encoder_width, {1, kMaxWidth});
  if (!keys.reads()) return;
  if (!config.encoder_decoder) {
    keys.reader().wrong(kSharedRole.key, "is not for decoder-only models", "an encoder-decoder architecture");
  }
  if (config.encoder_layers != 0) {
    keys.reader().wrong("num_layers", "gives a drafter an encoder that reads its target's", "0");
  }
}

}  // namespace

const ModelKind& shared_encoder_kind() {
  static const ModelKind kSharedEncoder = {
      .name = "a drafter that shares its target's encoder",
      .prefix = "DraftsmithSharedEncoder",
      .model_type = "draftsmith_shared_encoder",
      .hint =
          "it has no encoder of its own: decode with its target and this as the drafter "
          "(--model TARGET --drafter DIR)",
      .describes = [](const TransformerConfig& config) { return config.shares_encoder(); },
      .keys = shared_encoder_keys,
      .companion = &kSharedRole};
  return kSharedEncoder;
}

void require_shared_encoder_pair(const TransformerConfig& drafter, const TransformerConfig& target,
                                 const PairNames& names) {
  Problems problems;
  if (!target.has_encoder()) {
    problems.add({.where = names.companion,
                  .what = "has no encoder that a drafter could share",
                  .expected = "an encoder-decoder",
                  .found = target.family});
  }
  check_pair(kSharedRole, drafter, target, names, problems);
  if (drafter.shares_encoder()) {
    require_same(kSharedRole, names, "the width of its encoder states",
                 {std::to_string(drafter.shared_encoder_width), std::to_string(target.width)}, problems);
  }
  problems.throw_if_any();
}

std::unique_ptr<TransformerModel> make_shared_encoder_drafter(const TransformerModel& ordinary,
                                                              const TransformerModel& target,
                                                              const ProjectionOptions& projection) {
  require_shared_encoder_pair(ordinary.config(), target.config(), {ordinary.info().name, target.info().name});
  TransformerConfig config = ordinary.config();
  config.encoder_layers = 0;
  config.shared_encoder_width = target.config().width;
  return with_projections(config, ordinary, projection);
}

}  // namespace draftsmith::model
