#include "model/layers/step_places.h"

#include <algorithm>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/device_kernels.h"
#include "model/kernel_texts.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kTokensPerBlock = 256;

DeviceKernels& places_kernels() {
  static DeviceKernels instance(step_places_source());
  return instance;
}

at::Tensor empty_places(const at::Tensor& base, int64_t tokens) {
  return at::empty({base.size(0) * (4 * tokens + 3)}, base.options());
}

at::Tensor places_on_cpu(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                         int64_t spare) {
  const auto bases = base.accessor<int64_t, 1>();
  const auto counts = new_tokens.accessor<int64_t, 1>();
  const auto of_rows = rows.accessor<int64_t, 2>();
  std::vector<PlacedRow> placed;
  for (int64_t b = 0; b < base.size(0); ++b) {
    placed.push_back({bases[b], counts[b], of_rows[0][b], of_rows[1][b], of_rows[2][b]});
  }
  at::Tensor packed = empty_places(base, tokens);
  write_places(placed, tokens, /*siblings=*/false, spare, packed.mutable_data_ptr<int64_t>());
  return packed;
}

at::Tensor places_on_gpu(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                         int64_t spare) {
  const void* kernel = places_kernels().find(base.device(), "step_places");
  TORCH_CHECK(kernel != nullptr, "the kernel step_places cannot run on ", base.device());
  at::Tensor packed = empty_places(base, tokens);
  const auto blocks = static_cast<unsigned>((base.size(0) * tokens + kTokensPerBlock - 1) / kTokensPerBlock);
  if (blocks == 0) return packed;
  places_kernels().launch(
      kernel, base.device(), {blocks}, {static_cast<unsigned>(kTokensPerBlock)}, base.contiguous().const_data_ptr(),
      new_tokens.contiguous().const_data_ptr(), rows.contiguous().const_data_ptr(), packed.mutable_data_ptr(),
      static_cast<long long>(base.size(0)), static_cast<long long>(tokens), static_cast<long long>(spare));
  return packed;
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("step_places(Tensor base, Tensor new_tokens, Tensor rows, int tokens, int spare) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("step_places", &places_on_cpu);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("step_places", &places_on_gpu);
}

}  // namespace

void write_places(std::span<const PlacedRow> rows, int64_t tokens, bool siblings, int64_t spare, int64_t* packed) {
  const int64_t batch = std::ssize(rows);
  const int64_t all = batch * tokens;
  int64_t* of_row = packed + 4 * all;
  for (const PlacedRow& row : rows) {
    for (int64_t j = 0; j < tokens; ++j, ++packed) {
      const int64_t position = row.base + (siblings ? 0 : std::min(j, row.new_tokens));
      packed[0] = j < row.new_tokens ? row.base + j : spare;
      packed[all] = position;
      packed[2 * all] = position + (siblings ? 0 : 1);
      packed[3 * all] = row.source_length;
    }
    of_row[0] = row.cache_row;
    of_row[batch] = row.source_row;
    of_row[2 * batch] = std::max<int64_t>(0, row.new_tokens - 1);
    ++of_row;
  }
}

at::Tensor step_places(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                       int64_t spare) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::step_places", "").typed<decltype(places_on_cpu)>();
  return op.call(base, new_tokens, rows, tokens, spare);
}

bool has_step_places(at::Device device) {
  return !device.is_cuda() || places_kernels().find(device, "step_places") != nullptr;
}

KernelSource step_places_source() {
  return kernel_source(model_kernel_texts(), "model/layers/kernels/step_places.cu");
}

}  // namespace draftsmith::model
