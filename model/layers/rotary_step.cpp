#include "model/layers/rotary_step.h"

#include <algorithm>

#include "model/layers/step_operators.h"

namespace draftsmith::model {
namespace {

template <class T>
void rotate_in_place(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                     const std::vector<int64_t>& positions) {
  const int64_t half = table.cosine.size(1);
  const int64_t heads = x.size(2) / head_width;
  const T* cosines = table.cosine.const_data_ptr<T>();
  const T* sines = table.sine.const_data_ptr<T>();
  T* data = x.mutable_data_ptr<T>();
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      const int64_t position = std::min(positions[static_cast<size_t>(b * x.size(1) + j)], table.positions() - 1);
      const T* cosine = cosines + position * half;
      const T* sine = sines + position * half;
      T* head = data + b * x.stride(0) + j * x.stride(1);
      for (int64_t h = 0; h < heads; ++h, head += head_width) {
        for (int64_t i = 0; i < half; ++i) {
          const T first = head[i];
          const T second = head[i + half];
          head[i] = first * cosine[i] - second * sine[i];
          head[i + half] = second * cosine[i] + first * sine[i];
        }
      }
    }
  }
}

}  // namespace

at::Tensor rotate_step(const at::Tensor& x, int64_t head_width, const RotaryTable& table,
                       const StepPositions& positions) {
  if (!x.is_cpu()) {
    rotate_at(x, table.cosine, table.sine, positions.on_device, head_width);
    return x;
  }
  const bool in_place = x.stride(2) == 1 && x.scalar_type() == table.cosine.scalar_type();
  if (in_place && x.scalar_type() == at::kFloat) {
    rotate_in_place<float>(x, head_width, table, positions.on_host);
    return x;
  }
  if (in_place && x.scalar_type() == at::kDouble) {
    rotate_in_place<double>(x, head_width, table, positions.on_host);
    return x;
  }
  const at::Tensor rows = at::tensor(positions.on_host, at::kLong).clamp_max(table.positions() - 1);
  const RotaryTable picked = rotary_rows(table, rows.view({x.size(0), x.size(1)}));
  return rotate_sequence(x, head_width, {picked.cosine.to(x.scalar_type()), picked.sine.to(x.scalar_type())});
}

}  // namespace draftsmith::model
