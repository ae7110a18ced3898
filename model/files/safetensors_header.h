// The JSON header of a safetensors file, checked against the bytes that follow it before any offset or shape is used.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "model/files/safetensors.h"

namespace draftsmith::model {

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses and checks a header. `data_bytes` is the size of the data section, `file` names it in errors.
// Errors (UserError): those of SafetensorsFile's constructor that concern the header.
SafetensorsHeader read_safetensors_header(std::string_view text, uint64_t data_bytes,
                                          const std::filesystem::path& file);

}  // namespace draftsmith::model
