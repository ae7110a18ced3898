#include "infer/loop/device_rows.h"

#include <algorithm>

namespace draftsmith::infer {

namespace {

constexpr int64_t kUses = 3;  // of random numbers: Draw
// Tables have a multiple of so many numbers, so that those of later batches fit in too.
constexpr int64_t kNumbersStep = 64;

// Returns fp64 [B,N,3]: the numbers of all new tokens that rounds of at most `window` drafted tokens read.
at::Tensor uniform_table(std::span<const Row> rows, int64_t window) {
  int64_t numbers = window + 1;
  for (const Row& row : rows) numbers = std::max(numbers, row.limit + window + 1);
  numbers = (numbers + kNumbersStep - 1) / kNumbersStep * kNumbersStep;
  at::Tensor table = at::empty({std::ssize(rows), numbers, kUses}, at::kDouble);
  auto* out = table.mutable_data_ptr<double>();
  for (const Row& row : rows) {
    for (int64_t n = 0; n < numbers; ++n) {
      for (int64_t use = 0; use < kUses; ++use) *out++ = row.random.uniform(static_cast<Draw>(use), n);
    }
  }
  return table;
}

void name_parts(DeviceRows& rows) {
  rows.length = rows.numbers[0];
  rows.prefix = rows.numbers[1];
  rows.end = rows.numbers[2];
  rows.drafted = rows.numbers[3];
  rows.active = rows.numbers[4];
}

}  // namespace

DeviceRows device_rows(std::span<const Row> rows, std::span<const int64_t> drafted, std::span<const int64_t> eos,
                       const DeviceRowsShape& shape) {
  const int64_t batch = std::ssize(rows);
  const int64_t columns = shape.capacity + shape.window + 1;
  DeviceRows result;
  result.text = at::zeros({batch, columns}, at::kLong);
  std::vector<int64_t> numbers;  // [5,B]
  for (size_t b = 0; b < rows.size(); ++b) {
    std::ranges::copy(rows[b].tokens, result.text.mutable_data_ptr<int64_t>() + static_cast<int64_t>(b) * columns);
  }
  for (const Row& row : rows) numbers.push_back(row.length());
  for (const Row& row : rows) numbers.push_back(row.prefix);
  for (const Row& row : rows) numbers.push_back(row.prefix + row.limit);
  numbers.insert(numbers.end(), drafted.begin(), drafted.end());
  for (const Row& row : rows) numbers.push_back(row.finished ? 0 : 1);
  result.numbers = to_device(numbers, {5, batch}, at::kCPU);
  result.eos = to_device(eos, {std::ssize(eos)}, at::kCPU);
  if (shape.draws) result.uniforms = uniform_table(rows, shape.window);
  name_parts(result);
  return result;
}

DeviceRows DeviceRows::to(at::Device device) const {
  const auto copied = [&](const at::Tensor& host) { return host.to(device, /*non_blocking=*/true); };
  DeviceRows rows;
  rows.numbers = copied(numbers);
  rows.text = copied(text);
  rows.eos = copied(eos);
  if (uniforms.defined()) rows.uniforms = copied(uniforms);
  name_parts(rows);
  return rows;
}

bool DeviceRows::take(const DeviceRows& host) {
  const auto alike = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || a.sizes().equals(b.sizes()));
  };
  if (!alike(text, host.text) || !alike(eos, host.eos) || !alike(uniforms, host.uniforms)) return false;
  numbers.copy_(host.numbers, /*non_blocking=*/true);
  text.copy_(host.text, /*non_blocking=*/true);
  if (uniforms.defined()) uniforms.copy_(host.uniforms, /*non_blocking=*/true);
  return true;
}

}  // namespace draftsmith::infer
