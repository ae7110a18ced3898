// The drafter `model` without an encoder of its own (model/kinds/shared_encoder.h): it drafts as any small model does,
// but projects the encoder states that the target has computed.
#pragma once

#include <filesystem>
#include <memory>

#include "infer/drafters/model_drafter.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

class SharedEncoderDrafter final : public ModelDrafter {
 public:
  // `drafter` must share the encoder of the decoding loop's target and outlive this object. `vocabulary` as in
  // ModelDrafter.
  SharedEncoderDrafter(model::TransformerModel& drafter, int64_t vocabulary)
      : ModelDrafter(drafter, vocabulary), drafter_(drafter) {}

  // Projects the target's encoder states.
  void encode(const DraftBegin& begin) override { set_encoder(drafter_.project_encoder(*begin.target_encoder)); }

 private:
  model::TransformerModel& drafter_;
};

// Loads the drafter in `directory`. Errors: UserError, also for a drafter of another target than the model in `target`;
// an empty `target` is not compared.
SharedDrafter load_shared_encoder_drafter(const std::filesystem::path& directory, const std::filesystem::path& target,
                                          const model::LoadOptions& options);

// Makes a drafter of a model that shares an encoder. Without its tokenizer, its vocabulary must be as large as the
// target's.
SharedDrafter shared_encoder_drafter(std::shared_ptr<model::TransformerModel> drafter,
                                     const data::Tokenizer* tokenizer = nullptr);

}  // namespace draftsmith::infer
