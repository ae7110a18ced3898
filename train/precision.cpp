#include "train/precision.h"

#include "base/bf16_product.h"
#include "model/cpu/instructions.h"

namespace draftsmith::train {

bool trains_in_bf16(const std::string& precision, at::Device device) {
  if (precision != "auto") return precision == "bf16";
  const auto needed = has_bf16_tiles() ? model::Instructions::kAmx : model::Instructions::kAvx512;
  return device.is_cpu() && has_bf16_product() && model::cpu_instructions() >= needed;
}

}  // namespace draftsmith::train
