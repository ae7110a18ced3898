// pytorch_model.bin: a state dict as torch.save writes it (the zip form of PyTorch 1.6 and later), tensors only.
// LibTorch reads the archive; model/files/pickle/pickle_reader.h reads the pickle in it without running anything. Sizes
// in the pickle are checked against the stored bytes before they are used.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/aten.h"
#include "model/files/pickle/pickle_reader.h"
#include "model/files/tensor_file.h"

namespace draftsmith::model {

class PickledWeights final : public TensorFile {
 public:
  // Reads the description of the file's tensors. Errors (UserError): not a zip file (the form before 1.6 included), a
  // damaged archive or pickle, anything in it but a dictionary of names to dense tensors, tensors that reach outside
  // their storage.
  explicit PickledWeights(std::filesystem::path file);
  ~PickledWeights() override;

  const std::filesystem::path& file() const override { return file_; }
  const std::map<std::string, TensorEntry>& tensors() const override { return entries_; }
  // Reads the tensor at every call.
  at::Tensor stored(const std::string& name) const override;
  std::span<const std::byte> bytes(const std::string& name) const override;

 private:
  struct Archive;

  void add(const std::string& name);

  std::filesystem::path file_;
  std::unique_ptr<Archive> archive_;
  std::map<std::string, PickledTensor> pickled_;
  std::map<std::string, TensorEntry> entries_;
  mutable std::map<std::string, at::Tensor> contiguous_;  // memory that bytes() returns
};

}  // namespace draftsmith::model
