#include "model/tensor_file.h"

#include "model/pickled_weights.h"

namespace draftsmith::model {

namespace {

class MappedTensors final : public TensorFile {
 public:
  explicit MappedTensors(const std::filesystem::path& file) : tensors_(file) {}
  const std::filesystem::path& file() const override { return tensors_.file(); }
  const std::map<std::string, TensorEntry>& tensors() const override { return tensors_.tensors(); }
  at::Tensor read(const std::string& name, at::ScalarType dtype) const override { return tensors_.read(name, dtype); }
  std::span<const std::byte> bytes(const std::string& name) const override { return tensors_.bytes(name); }

 private:
  SafetensorsFile tensors_;
};

}  // namespace

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<MappedTensors>(file);
  return std::make_unique<PickledWeights>(file);
}

}  // namespace draftsmith::model
