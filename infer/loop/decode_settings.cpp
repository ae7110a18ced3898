#include "infer/loop/decode_settings.h"

#include "infer/loop/processors.h"

namespace draftsmith::infer {

void DecodeSettings::process(const at::Tensor& logits, const ProcessorContext& context) const {
  mask_padding(logits, ids);
  if (!processors.empty()) processors.apply(logits.dim() == 2 ? logits.unsqueeze(1) : logits, context);
}

}  // namespace draftsmith::infer
