#include "model/layers/linear_rows.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "base/device.h"
#include "base/device_kernels.h"
#include "base/device_tensors.h"
#include "model/layers/rms_norm.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kBytes = 16;  // of a load
constexpr int64_t kMostNumbers = int64_t{1} << 30;

// Returns the kernels of a type; nullptr if there are none. Each type's are compiled when they are first needed.
DeviceKernels* kernels_of(at::ScalarType type) {
  static DeviceKernels kernels[] = {DeviceKernels(linear_rows_source(at::kFloat)),
                                    DeviceKernels(linear_rows_source(at::kBFloat16)),
                                    DeviceKernels(linear_rows_source(at::kHalf))};
  const auto found = std::ranges::find(kLinearRowsTypes, type);
  return found == std::end(kLinearRowsTypes) ? nullptr : &kernels[found - std::begin(kLinearRowsTypes)];
}

bool is_aligned(const at::Tensor& rows) {
  return rows.is_contiguous() && reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kBytes == 0 &&
         rows.size(-1) * static_cast<int64_t>(rows.element_size()) % kBytes == 0;
}

bool is_vector(const at::Tensor& tensor, at::ScalarType type, int64_t outputs) {
  return !tensor.defined() || (tensor.scalar_type() == type && tensor.is_contiguous() && tensor.numel() == outputs);
}

bool takes_layer(const at::Tensor& x, const LinearWeights& layer) {
  return layer.weight.scalar_type() == x.scalar_type() && layer.weight.device() == x.device() &&
         layer.weight.size(1) == x.size(-1) && is_aligned(layer.weight) &&
         is_vector(layer.bias, x.scalar_type(), layer.weight.size(0));
}

bool takes_input(const at::Tensor& x, const InputNorm& norm) {
  return x.numel() > 0 && x.numel() <= most_linear_rows(x.scalar_type()) * x.size(-1) && x.numel() <= kMostNumbers &&
         is_aligned(x) &&
         (!norm.weight.defined() || (is_vector(norm.weight, x.scalar_type(), x.size(-1)) && is_aligned(norm.weight)));
}

bool takes_weights(const at::Tensor& x, const LinearWeights& layer, const LinearWeights& up,
                   const at::Tensor& residual) {
  const int64_t rows = x.numel() / x.size(-1);
  const int64_t outputs = layer.weight.size(0);
  const bool alike = !up.weight.defined() || (takes_layer(x, up) && up.weight.sizes().equals(layer.weight.sizes()));
  return outputs > 0 && outputs <= kMostNumbers && alike && takes_layer(x, layer) &&
         (!residual.defined() || (residual.scalar_type() == x.scalar_type() && residual.numel() == rows * outputs));
}

int64_t divided_up(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

// Returns the kernel on tensor cores. With few outputs, blocks of 8 occupy more of a device than blocks of 16.
LinearRowsKernel tensor_rows_kernel(const std::string& name, int64_t rows, int64_t outputs, bool gated) {
  const int64_t block = gated || outputs > 2048 ? 16 : 8;
  const int64_t most = rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
  return {fmt::format("{}_{}_{}", name, most, block), divided_up(outputs, block / (gated ? 2 : 1)), 256};
}

}  // namespace

// Every block reads all inputs: for more than 16 rows of long inputs, or many blocks, that takes too long.
bool prefers_linear_rows(int64_t rows, const at::Tensor& weight) {
  constexpr int64_t kMostInputs = 2048;
  constexpr int64_t kMostWeights = int64_t{1} << 22;
  return rows <= 16 || (rows <= most_linear_rows(weight.scalar_type()) && weight.size(1) <= kMostInputs &&
                        weight.numel() <= kMostWeights);
}

KernelSource linear_rows_source(at::ScalarType type) {
  if (type != at::kBFloat16) {
    return kernel_source_of_type(model_kernel_texts(), "model/layers/kernels/linear_rows.cu", "LINEAR_ROWS",
                                 dtype_name(type));
  }
  KernelSource source = kernel_source(model_kernel_texts(), "model/layers/kernels/tensor_rows.cu", {"--fmad=false"});
  source.waits_for_inputs = true;
  return source;
}

LinearRowsKernel linear_rows_kernel(at::ScalarType type, int64_t rows, int64_t outputs, bool normed, bool gated) {
  const std::string name = fmt::format("{}_rows_{}", normed ? "normed" : "linear", dtype_name(type));
  if (type == at::kBFloat16) return tensor_rows_kernel(name, rows, outputs, gated);
  const auto most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t of_block = 2 * (most <= 4 ? 2 : 4) / (gated ? 2 : 1);
  return {fmt::format("{}_{}", name, most), divided_up(outputs, of_block), 64};
}

namespace {

at::Tensor linear_by_operators(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor rows_by_operators(const at::Tensor& x, const at::Tensor& norm, double epsilon, const at::Tensor& weight,
                             const at::Tensor& bias, const at::Tensor& up, const at::Tensor& up_bias, int64_t then,
                             const at::Tensor& residual) {
  const at::Tensor in = norm.defined() ? rms_normed(x, norm, epsilon).y : x;
  at::Tensor y = applied(static_cast<PostOp>(then), linear_by_operators(in, weight, bias));
  if (up.defined()) y = y * linear_by_operators(in, up, up_bias);
  return residual.defined() ? residual + y : y;
}

// Returns what linear_rows() does; nothing where no kernel takes the tensors. That is so for more rows than
// most_linear_rows(), other or mixed dtypes, and rows that are no multiples of 16 bytes, and on a machine that cannot
// run kernels.
std::optional<at::Tensor> rows_by_kernel(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                         const LinearWeights& up, PostOp then, const at::Tensor& residual) {
  const at::Tensor in = x.contiguous();
  if (!takes_input(in, norm) || !takes_weights(in, layer, up, residual)) return std::nullopt;
  DeviceKernels* kernels = kernels_of(in.scalar_type());
  if (kernels == nullptr) return std::nullopt;
  const int64_t rows = in.numel() / in.size(-1);
  const int64_t outputs = layer.weight.size(0);
  const LinearRowsKernel chosen =
      linear_rows_kernel(in.scalar_type(), rows, outputs, norm.weight.defined(), up.weight.defined());
  const void* kernel = kernels->find(in.device(), chosen.name);
  if (kernel == nullptr) return std::nullopt;
  std::vector<int64_t> shape = in.sizes().vec();
  shape.back() = outputs;
  at::Tensor y = at::empty(shape, in.options());
  const at::Tensor added = residual.defined() ? residual.contiguous() : residual;
  kernels->launch(kernel, in.device(), {static_cast<unsigned>(chosen.blocks)}, {static_cast<unsigned>(chosen.threads)},
                  data_or_null(in), data_or_null(norm.weight), static_cast<float>(norm.epsilon),
                  data_or_null(layer.weight), data_or_null(layer.bias), data_or_null(up.weight), data_or_null(up.bias),
                  data_or_null(added), y.mutable_data_ptr(), static_cast<int>(rows), static_cast<int>(in.size(-1)),
                  static_cast<int>(outputs), static_cast<int>(then));
  return y;
}

at::Tensor rows_on_gpu(const at::Tensor& x, const at::Tensor& norm, double epsilon, const at::Tensor& weight,
                       const at::Tensor& bias, const at::Tensor& up, const at::Tensor& up_bias, int64_t then,
                       const at::Tensor& residual) {
  const auto y = rows_by_kernel(x, {norm, epsilon}, {weight, bias}, {up, up_bias}, static_cast<PostOp>(then), residual);
  return y ? *y : rows_by_operators(x, norm, epsilon, weight, bias, up, up_bias, then, residual);
}

}  // namespace

at::Tensor linear_rows(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, PostOp then,
                       const at::Tensor& residual, const LinearWeights& up) {
  static const DeviceOperator op(
      "linear_rows(Tensor x, Tensor norm, float epsilon, Tensor weight, Tensor bias, Tensor up, Tensor up_bias, "
      "int then, Tensor residual) -> Tensor",
      &rows_by_operators, &rows_on_gpu);
  return op(x, norm.weight, norm.epsilon, layer.weight, layer.bias, up.weight, up.bias, static_cast<int64_t>(then),
            residual);
}

}  // namespace draftsmith::model
