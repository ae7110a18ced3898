#include "infer/loop/device_rows.h"

#include <algorithm>

namespace draftsmith::infer {

namespace {

constexpr int64_t kUses = 3;  // of random numbers: Draw

// Returns fp64 [B,N,3]: the numbers of all new tokens that rounds may read.
at::Tensor uniform_table(std::span<const Row> rows, int64_t window) {
  int64_t numbers = 1;
  for (const Row& row : rows) numbers = std::max(numbers, row.limit + window + 1);
  at::Tensor table = at::empty({std::ssize(rows), numbers, kUses}, at::kDouble);
  auto* out = table.mutable_data_ptr<double>();
  for (const Row& row : rows) {
    for (int64_t n = 0; n < numbers; ++n) {
      for (int64_t use = 0; use < kUses; ++use) *out++ = row.random.uniform(static_cast<Draw>(use), n);
    }
  }
  return table;
}

}  // namespace

DeviceRows rows_on_device(std::span<const Row> rows, std::span<const int64_t> drafted, std::span<const int64_t> eos,
                          int64_t window, bool draws, at::Device device) {
  const int64_t batch = std::ssize(rows);
  int64_t columns = 1;
  for (const Row& row : rows) columns = std::max(columns, row.prefix + row.limit);
  columns += window + 1;
  const at::Tensor text = at::zeros({batch, columns}, at::kLong);
  std::vector<int64_t> numbers;  // [5,B]
  for (size_t b = 0; b < rows.size(); ++b) {
    std::ranges::copy(rows[b].tokens, text.mutable_data_ptr<int64_t>() + static_cast<int64_t>(b) * columns);
  }
  for (const Row& row : rows) numbers.push_back(row.length());
  for (const Row& row : rows) numbers.push_back(row.prefix);
  for (const Row& row : rows) numbers.push_back(row.prefix + row.limit);
  numbers.insert(numbers.end(), drafted.begin(), drafted.end());
  for (const Row& row : rows) numbers.push_back(row.finished ? 0 : 1);
  const at::Tensor of_rows = to_device(numbers, {5, batch}, device);
  DeviceRows result;
  result.text = text.to(device, /*non_blocking=*/true);
  result.length = of_rows[0];
  result.prefix = of_rows[1];
  result.end = of_rows[2];
  result.drafted = of_rows[3];
  result.active = of_rows[4];
  result.eos = to_device(eos, {std::ssize(eos)}, device);
  if (draws) result.uniforms = uniform_table(rows, window).to(device, /*non_blocking=*/true);
  return result;
}

}  // namespace draftsmith::infer
