#include "infer/loop/device_rows.h"

#include <algorithm>

#include "base/device_kernels.h"

#define ROUND_FUNCTION inline
#include "infer/loop/kernels/rounds.cuh"

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

namespace {

constexpr int64_t kRowsPerBlock = 64;
constexpr int64_t kNumbersPerBlock = 256;

DeviceKernels& round_kernels() {
  static DeviceKernels instance(round_source());
  return instance;
}

// Launches a kernel with a thread for each of `items`.
template <class... Arguments>
void launch_round(const char* name, at::Device device, int64_t items, int64_t per_block, Arguments... arguments) {
  const void* kernel = round_kernels().find(device, name);
  TORCH_CHECK(kernel != nullptr, "the kernel ", name, " cannot run on ", device);
  round_kernels().launch(kernel, device, {static_cast<unsigned>((items + per_block - 1) / per_block)},
                         {static_cast<unsigned>(per_block)}, arguments...);
}

const int64_t* ids_of(const at::Tensor& tensor) {
  return tensor.const_data_ptr<int64_t>();
}

at::Tensor empty_plan(const at::Tensor& length, int64_t window) {
  return at::empty({(6 + 2 * window) * length.size(0)}, length.options());
}

at::Tensor plan_on_cpu(const at::Tensor& text, const at::Tensor& length, const at::Tensor& drafted,
                       const at::Tensor& end, const at::Tensor& active, int64_t window) {
  at::Tensor plan = empty_plan(length, window);
  for (int64_t b = 0; b < length.size(0); ++b) {
    kernel::plan_row(b, ids_of(text), ids_of(length), ids_of(drafted), ids_of(end), ids_of(active),
                     plan.mutable_data_ptr<int64_t>(), length.size(0), text.size(1), static_cast<int>(window));
  }
  return plan;
}

at::Tensor plan_on_gpu(const at::Tensor& text, const at::Tensor& length, const at::Tensor& drafted,
                       const at::Tensor& end, const at::Tensor& active, int64_t window) {
  at::Tensor plan = empty_plan(length, window);
  const int64_t batch = length.size(0);
  launch_round("plan_round", length.device(), batch, kRowsPerBlock, text.const_data_ptr(), length.const_data_ptr(),
               drafted.const_data_ptr(), end.const_data_ptr(), active.const_data_ptr(), plan.mutable_data_ptr(),
               static_cast<long long>(batch), static_cast<long long>(text.size(1)), static_cast<int>(window));
  return plan;
}

void commit_on_cpu(const at::Tensor& text, const at::Tensor& length, const at::Tensor& drafted,
                   const at::Tensor& active, const at::Tensor& end, const at::Tensor& eos, const at::Tensor& tokens,
                   const at::Tensor& counts, const at::Tensor& accepted, const at::Tensor& next) {
  const at::Tensor drawn = tokens.contiguous();
  for (int64_t b = 0; b < length.size(0); ++b) {
    kernel::commit_row(b, text.mutable_data_ptr<int64_t>(), length.mutable_data_ptr<int64_t>(),
                       drafted.mutable_data_ptr<int64_t>(), active.mutable_data_ptr<int64_t>(), ids_of(end),
                       ids_of(eos), static_cast<int>(eos.numel()), ids_of(drawn), ids_of(counts)[b],
                       ids_of(accepted)[b], ids_of(next)[b], kNoToken, static_cast<int>(tokens.size(1)), text.size(1));
  }
}

void commit_on_gpu(const at::Tensor& text, const at::Tensor& length, const at::Tensor& drafted,
                   const at::Tensor& active, const at::Tensor& end, const at::Tensor& eos, const at::Tensor& tokens,
                   const at::Tensor& counts, const at::Tensor& accepted, const at::Tensor& next) {
  const int64_t batch = length.size(0);
  launch_round("commit_round", length.device(), batch, kRowsPerBlock, text.mutable_data_ptr(),
               length.mutable_data_ptr(), drafted.mutable_data_ptr(), active.mutable_data_ptr(), end.const_data_ptr(),
               eos.const_data_ptr(), static_cast<int>(eos.numel()), tokens.contiguous().const_data_ptr(),
               counts.contiguous().const_data_ptr(), accepted.contiguous().const_data_ptr(),
               next.contiguous().const_data_ptr(), static_cast<long long>(batch), static_cast<int>(tokens.size(1)),
               static_cast<long long>(text.size(1)));
}

at::Tensor uniforms_on_cpu(const at::Tensor& table, const at::Tensor& length, const at::Tensor& prefix, int64_t use,
                           int64_t first, int64_t count) {
  at::Tensor values = at::empty({length.size(0), count}, table.options());
  const auto from = table.accessor<double, 3>();
  auto to = values.accessor<double, 2>();
  const auto lengths = length.accessor<int64_t, 1>();
  const auto prefixes = prefix.accessor<int64_t, 1>();
  for (int64_t b = 0; b < length.size(0); ++b) {
    for (int64_t j = 0; j < count; ++j) {
      to[b][j] = from[b][std::min(lengths[b] - prefixes[b] + first + j, table.size(1) - 1)][use];
    }
  }
  return values;
}

at::Tensor uniforms_on_gpu(const at::Tensor& table, const at::Tensor& length, const at::Tensor& prefix, int64_t use,
                           int64_t first, int64_t count) {
  at::Tensor values = at::empty({length.size(0), count}, table.options());
  if (values.numel() == 0) return values;
  launch_round("row_uniforms", table.device(), values.numel(), kNumbersPerBlock, table.const_data_ptr(),
               length.const_data_ptr(), prefix.const_data_ptr(), values.mutable_data_ptr(),
               static_cast<long long>(length.size(0)), static_cast<long long>(table.size(1)), static_cast<int>(use),
               static_cast<long long>(first), static_cast<long long>(count));
  return values;
}

}  // namespace

RoundPlan plan_round(const DeviceRows& rows, int64_t window) {
  static const DeviceOperator op(
      "plan_round(Tensor text, Tensor length, Tensor drafted, Tensor end, Tensor active, int window) -> Tensor",
      &plan_on_cpu, &plan_on_gpu);
  const at::Tensor plan = op(rows.text, rows.length, rows.drafted, rows.end, rows.active, window);
  const int64_t batch = rows.length.size(0);
  const auto part = [&](int64_t i, int64_t parts = 1) { return plan.narrow(0, i * batch, parts * batch); };
  RoundPlan views{part(0).unsqueeze(1), part(1), part(2), part(3), part(4, 2).view({batch, 2}), {}, {}};
  for (int64_t j = 0; j < window; ++j) {
    views.base_of_draft.push_back(part(6 + j));
    views.new_of_draft.push_back(part(6 + window + j));
  }
  return views;
}

void commit_round(const DeviceRows& rows, const at::Tensor& drafted, const at::Tensor& counts,
                  const at::Tensor& accepted, const at::Tensor& next) {
  static const DeviceOperator op(
      "commit_round(Tensor(a!) text, Tensor(b!) length, Tensor(c!) drafted, Tensor(d!) active, Tensor end, Tensor eos, "
      "Tensor tokens, Tensor counts, Tensor accepted, Tensor next) -> ()",
      &commit_on_cpu, &commit_on_gpu);
  op(rows.text, rows.length, rows.drafted, rows.active, rows.end, rows.eos, drafted, counts, accepted, next);
}

at::Tensor row_uniforms(const DeviceRows& rows, Draw use, int64_t first, int64_t count) {
  static const DeviceOperator op(
      "row_uniforms(Tensor table, Tensor length, Tensor prefix, int use, int first, int count) -> Tensor",
      &uniforms_on_cpu, &uniforms_on_gpu);
  return op(rows.uniforms, rows.length, rows.prefix, static_cast<int64_t>(use), first, count);
}

bool has_round_operators(at::Device device) {
  return !device.is_cuda() || round_kernels().find(device, "plan_round") != nullptr;
}

KernelSource round_source() {
  return kernel_source(infer_kernel_texts(), "infer/loop/kernels/rounds.cu");
}

}  // namespace draftsmith::infer
