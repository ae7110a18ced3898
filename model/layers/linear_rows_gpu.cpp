#include "model/layers/linear_rows_gpu.h"

#include <array>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "base/device.h"
#include "base/device_kernels.h"
#include "model/kernel_texts.h"

namespace draftsmith::model {
namespace {

constexpr int64_t kWarpsOfBlock = 2;
constexpr int64_t kBytes = 16;  // of a load
constexpr int64_t kMostNumbers = int64_t{1} << 30;

std::string suffix_of(const LinearRowsPair& pair) {
  return dtype_name(pair.x) + "_" + (pair.weight == at::kChar ? "int8" : dtype_name(pair.weight));
}

const char* kernel_type(at::ScalarType type) {
  return type == at::kFloat ? "Float" : type == at::kHalf ? "Half" : type == at::kChar ? "Int8" : "BFloat16";
}

// Returns the kernels of a pair of dtypes; nullptr if there are none. Each pair is compiled when it is first needed.
DeviceKernels* kernels_of(const LinearRowsPair& pair) {
  static std::array<std::unique_ptr<DeviceKernels>, std::size(kLinearRowsPairs)> all;
  static std::once_flag made;
  std::call_once(made, [] {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = std::make_unique<DeviceKernels>(linear_rows_source(kLinearRowsPairs[i]));
    }
  });
  for (size_t i = 0; i < all.size(); ++i) {
    if (kLinearRowsPairs[i].x == pair.x && kLinearRowsPairs[i].weight == pair.weight) return all[i].get();
  }
  return nullptr;
}

const void* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

bool is_aligned(const at::Tensor& rows) {
  return rows.is_contiguous() && reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kBytes == 0 &&
         rows.size(-1) * static_cast<int64_t>(rows.element_size()) % kBytes == 0;
}

bool is_vector(const at::Tensor& tensor, at::ScalarType type, int64_t outputs) {
  return !tensor.defined() || (tensor.scalar_type() == type && tensor.is_contiguous() && tensor.numel() == outputs);
}

bool takes_layer(const at::Tensor& x, const LinearWeights& layer) {
  const bool int8 = layer.weight.scalar_type() == at::kChar;
  const int64_t outputs = layer.weight.size(0);
  return (int8 || layer.weight.scalar_type() == x.scalar_type()) && int8 == layer.scale.defined() &&
         layer.weight.device() == x.device() && layer.weight.size(1) == x.size(-1) && is_aligned(layer.weight) &&
         is_vector(layer.bias, x.scalar_type(), outputs) && is_vector(layer.scale, at::kFloat, outputs);
}

bool takes_input(const at::Tensor& x, const InputNorm& norm) {
  return x.numel() > 0 && x.numel() <= kMostLinearRows * x.size(-1) && x.numel() <= kMostNumbers && is_aligned(x) &&
         (!norm.weight.defined() || (is_vector(norm.weight, x.scalar_type(), x.size(-1)) && is_aligned(norm.weight)));
}

bool takes_weights(const at::Tensor& x, const LinearWeights& layer, const LinearWeights& up,
                   const at::Tensor& residual) {
  const int64_t rows = x.numel() / x.size(-1);
  const int64_t outputs = layer.weight.size(0);
  const bool alike = !up.weight.defined() || (takes_layer(x, up) && up.weight.sizes().equals(layer.weight.sizes()) &&
                                              up.weight.scalar_type() == layer.weight.scalar_type());
  return outputs > 0 && outputs <= kMostNumbers && alike && takes_layer(x, layer) &&
         (!residual.defined() || (residual.scalar_type() == x.scalar_type() && residual.numel() == rows * outputs));
}

// Returns the number of rows of the kernel for `rows` of them, at most kMostLinearRows.
int64_t kernel_rows_for(int64_t rows) {
  for (const int64_t most : kLinearRowsKernels) {
    if (rows <= most) return most;
  }
  return kMostLinearRows;
}

}  // namespace

KernelSource linear_rows_source(const LinearRowsPair& pair) {
  return kernel_source(
      model_kernel_texts(), "model/layers/kernels/linear_rows.cu",
      {"--fmad=false", "-DLINEAR_ROWS_PAIR=" + suffix_of(pair), std::string("-DLINEAR_ROWS_X=") + kernel_type(pair.x),
       std::string("-DLINEAR_ROWS_W=") + kernel_type(pair.weight)});
}

int64_t linear_rows_blocks(int64_t kernel_rows, bool int8, int64_t outputs, int64_t layers) {
  const int64_t of_warp = (int8 || kernel_rows <= 4 ? 2 : 4) / layers;
  return (outputs + of_warp * kWarpsOfBlock - 1) / (of_warp * kWarpsOfBlock);
}

bool linear_rows_takes(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer, const LinearWeights& up,
                       const at::Tensor& residual) {
  return takes_input(x, norm) && takes_weights(x, layer, up, residual);
}

std::optional<at::Tensor> linear_rows_by_kernel(const at::Tensor& x, const InputNorm& norm, const LinearWeights& layer,
                                                const LinearWeights& up, PostOp then, const at::Tensor& residual) {
  const at::Tensor in = x.contiguous();
  if (!linear_rows_takes(in, norm, layer, up, residual)) return std::nullopt;
  const int64_t rows = in.numel() / in.size(-1);
  const int64_t outputs = layer.weight.size(0);
  const int64_t kernel_rows = kernel_rows_for(rows);
  const LinearRowsPair pair{in.scalar_type(), layer.weight.scalar_type()};
  DeviceKernels* kernels = kernels_of(pair);
  const std::string name =
      fmt::format("{}_rows_{}_{}", norm.weight.defined() ? "normed" : "linear", suffix_of(pair), kernel_rows);
  const void* kernel = kernels == nullptr ? nullptr : kernels->find(in.device(), name);
  if (kernel == nullptr) return std::nullopt;
  std::vector<int64_t> shape = in.sizes().vec();
  shape.back() = outputs;
  at::Tensor y = at::empty(shape, in.options());
  const at::Tensor added = residual.defined() ? residual.contiguous() : residual;
  const int64_t blocks =
      linear_rows_blocks(kernel_rows, pair.weight == at::kChar, outputs, up.weight.defined() ? 2 : 1);
  kernels->launch(kernel, in.device(), {static_cast<unsigned>(blocks)}, {32 * kWarpsOfBlock}, pointer(in),
                  pointer(norm.weight), static_cast<float>(norm.epsilon), pointer(layer.weight), pointer(layer.bias),
                  pointer(layer.scale), pointer(up.weight), pointer(up.bias), pointer(up.scale), pointer(added),
                  y.mutable_data_ptr(), static_cast<int>(rows), static_cast<int>(in.size(-1)),
                  static_cast<int>(outputs), static_cast<int>(then));
  return y;
}

}  // namespace draftsmith::model
