#include "model/files/write_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "model/files/weight_files.h"

namespace draftsmith::model {
namespace {

// The tensors begin at a multiple of this, so that a mapped file can be read with any vector width.
constexpr size_t kTensorAlignment = 64;

uint64_t stored_bytes(const TensorToStore& item) {
  return static_cast<uint64_t>(item.tensor.numel()) * c10::elementSize(item.dtype);
}

// The header with its length in front, padded with spaces as the format allows.
std::string make_header(const std::vector<TensorToStore>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const TensorToStore& item : tensors) {
    const uint64_t end = offset + stored_bytes(item);
    header[item.name] = {{"dtype", stored_dtype_name(item.dtype)},
                         {"shape", item.tensor.sizes().vec()},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kTensorAlignment - (8 + text.size()) % kTensorAlignment) % kTensorAlignment, ' ');
  const uint64_t bytes = text.size();
  std::string length(sizeof(bytes), '\0');
  std::memcpy(length.data(), &bytes, sizeof(bytes));
  return length + text;
}

// Throws a RunError that names the tensor if it holds NaN or infinity. `where` names what the tensor belongs to.
void require_finite_tensor(const std::string& where, const std::string& name, const at::Tensor& tensor) {
  if (!at::isfinite(tensor).all().item<bool>()) {
    const int64_t nan = at::isnan(tensor).sum().item<int64_t>();
    const int64_t inf = at::isinf(tensor).sum().item<int64_t>();
    throw RunError({.where = where + ": tensor '" + name + "'",
                    .what = "refusing to write weights that are not finite",
                    .expected = fmt::format("finite {} values", stored_dtype_name(tensor.scalar_type())),
                    .found = fmt::format("{} NaN and {} infinite of {} values", nan, inf, tensor.numel()),
                    .hint = "training diverged, or the values do not fit the stored dtype (fp16 ends at 65504)"});
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, std::vector<TensorToStore> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToStore& a, const TensorToStore& b) {
    const auto width_a = c10::elementSize(a.dtype);
    const auto width_b = c10::elementSize(b.dtype);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  AtomicFile out(file);
  out.write(make_header(tensors));
  for (const TensorToStore& item : tensors) {
    work_point();
    const at::Tensor stored = item.tensor.detach().to(at::kCPU, item.dtype).contiguous();
    require_finite_tensor(file.string(), item.name, stored);
    out.write(stored.const_data_ptr(), stored_bytes(item));
  }
  out.commit();
}

void write_weight_files(const std::filesystem::path& directory, const std::vector<TensorToStore>& tensors,
                        uint64_t shard_bytes) {
  std::vector<std::vector<TensorToStore>> shards(1);
  uint64_t in_shard = 0;
  uint64_t total = 0;
  for (const TensorToStore& item : tensors) {
    const uint64_t bytes = stored_bytes(item);
    if (!shards.back().empty() && in_shard + bytes > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(item);
    in_shard += bytes;
    total += bytes;
  }
  if (shards.size() == 1) {
    write_safetensors(directory / kWeightsFile, tensors);
    return;
  }
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorToStore& item : shards[i]) {
      index["weight_map"][item.name] = file;
    }
    write_safetensors(directory / file, std::move(shards[i]));
  }
  write_json(directory / (std::string(kWeightsFile) + ".index.json"), index);
}

}  // namespace draftsmith::model
