// BLEU's tokenizers that are SentencePiece models, as in sacreBLEU 2.6: flores101 and flores200 (spBLEU; Goyal et al.
// 2022) and spBLEU-1K. The model is read where sacreBLEU keeps it: $SACREBLEU/models, by default ~/.sacrebleu/models.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "metrics/bleu_tokenizer.h"

namespace draftsmith::metrics {

// Returns the folder of sacreBLEU's models.
std::filesystem::path sacrebleu_models();

// Return the tokenizer. Errors: UserError if its model is missing, which says where it belongs, or is no model.
std::unique_ptr<const BleuTokenizer> make_flores101_tokenizer();
std::unique_ptr<const BleuTokenizer> make_flores200_tokenizer();
std::unique_ptr<const BleuTokenizer> make_spbleu_1k_tokenizer();

}  // namespace draftsmith::metrics
