#include "model/dropout.h"

#include <ATen/CPUGeneratorImpl.h>

namespace draftsmith::model {
namespace {

// splitmix64 finaliser: spreads (seed, step, site) over the generator's seed space.
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

at::Tensor mask(const at::Tensor& like, const DropoutContext& context, uint64_t site) {
  const uint64_t seed = mixed(mixed(mixed(context.seed + 0x9e3779b97f4a7c15ULL) + context.step) + site);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const double keep = 1.0 - context.probability;
  const at::Tensor drawn = at::empty(like.sizes(), like.options().device(at::kCPU).requires_grad(false));
  drawn.bernoulli_(keep, generator).mul_(1.0 / keep);
  return drawn.to(like.device());
}

}  // namespace

at::Tensor Dropout::operator()(const at::Tensor& x) {
  if (!active()) {
    return x;
  }
  return x * mask(x, context_, site_++);
}

}  // namespace draftsmith::model
