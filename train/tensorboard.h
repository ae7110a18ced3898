// TensorBoard event files: TFRecord framing (length and content with masked CRC-32C each) around Event protocol
// buffers, which are small enough to be encoded by hand.
//   github.com/tensorflow/tensorboard, tensorboard/compat/proto/{event,summary}.proto
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace draftsmith::train {

// Returns the CRC-32C (Castagnoli) of the bytes, and TFRecord's masked form of it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// One scalar of a step: tag "train/loss".
using Scalar = std::pair<std::string, double>;

// Appends events to the one event file of a directory.
class EventWriter {
 public:
  // Opens the directory's event file, or makes one. Cuts off events of steps after `last_step`, that step's validation
  // unless `validated`, and an incomplete last record of a killed run. So a resumed run logs nothing twice. Throws
  // UserError, RunError.
  EventWriter(const std::filesystem::path& directory, int64_t last_step, bool validated = true);

  // Appends one event with all scalars of a step and flushes it: TensorBoard follows a running job.
  void add(int64_t step, std::span<const Scalar> scalars);
  const std::filesystem::path& file() const { return file_; }

 private:
  void append(std::string_view event);

  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace draftsmith::train
