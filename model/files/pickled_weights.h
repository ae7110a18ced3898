// pytorch_model.bin: a state dict as torch.save writes it (the zip form of PyTorch 1.6 and later), tensors only.
// LibTorch finds the archive's records, and its tensors lie over a mapping of the file. The pickle that describes them
// is followed without running anything.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/aten.h"
#include "base/files.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

class PickledWeights final : public TensorFile {
 public:
  // Maps the file and reads the description of its tensors. Errors (UserError): not a zip file (the form before 1.6
  // included), a damaged or compressed archive, a damaged pickle, anything in it but a dictionary of names to dense
  // tensors, tensors that reach outside their storage.
  explicit PickledWeights(std::filesystem::path file);

  const std::filesystem::path& file() const override { return file_; }
  const std::map<std::string, TensorEntry>& tensors() const override { return entries_; }
  // Returns a tensor over the mapping, with the strides it was saved with.
  at::Tensor stored(const std::string& name) const override;
  // Returns bytes of the mapping, or of a copy that is made once where the tensor is not contiguous.
  std::span<const std::byte> bytes(const std::string& name) const override;
  void will_need() const override { mapping_.will_need(); }
  void forget_pages() const override { mapping_.forget_pages(); }

 private:
  std::filesystem::path file_;
  MappedFile mapping_;
  std::map<std::string, at::Tensor> values_;
  std::map<std::string, TensorEntry> entries_;
  mutable std::map<std::string, at::Tensor> contiguous_;  // memory that bytes() returns
};

}  // namespace draftsmith::model
