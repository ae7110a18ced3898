// optimizer.safetensors of a training checkpoint: the state tensors of an optimizer, which may lie on several
// processes. Tensors travel one at a time; the leader alone reads and writes.
#pragma once

#include <filesystem>

#include "distributed/process_group.h"
#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

// Writes the whole state to the leader's `file`; the others' is ignored. All processes call it if the optimizer is
// sharded, else the leader alone. Errors: RunError.
void write_optimizer(const std::filesystem::path& file, const Optimizer& optimizer, ProcessGroup& world);

// Reads the state from the leader's `file`; the others' is ignored. All processes call it. Errors: UserError for
// tensors that are missing or misshapen.
void read_optimizer(const std::filesystem::path& file, Optimizer& optimizer, ProcessGroup& world);

}  // namespace draftsmith::train
