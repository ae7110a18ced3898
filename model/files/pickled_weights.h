// pytorch_model.bin: a state dict as torch.save writes it (the zip form of PyTorch 1.6 and later), tensors only.
// LibTorch finds the archive's records, and its tensors lie over a mapping of the file. The pickle that describes them
// is followed without running anything.
#pragma once

#include <filesystem>
#include <memory>

#include "model/files/safetensors.h"

namespace draftsmith::model {

// Maps the file and reads the description of its tensors, which keep the strides they were saved with. Errors
// (UserError): not a zip file (the form before 1.6 included), a damaged or compressed archive, a damaged pickle,
// anything in it but a dictionary of names to dense tensors, tensors that reach outside their storage.
std::unique_ptr<TensorFile> open_pickled_weights(const std::filesystem::path& file);

}  // namespace draftsmith::model
