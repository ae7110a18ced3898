// Cutting a smaller model out of a trained one: layers, feed-forward neurons and heads by magnitude (Han et al. 2015;
// Michel et al. 2019 for heads). The result is an ordinary model, ready for alignment or distillation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/transformer_model.h"

namespace draftsmith::model {

struct PruneOptions {
  std::string by = "magnitude";     // what neurons and heads are chosen by
  std::string encoder_layers = {};  // which layers stay, see layers_to_keep; empty: all
  std::string decoder_layers = {};
  int64_t ff_width = 0;  // neurons that stay in each layer; 0: all
  int64_t heads = 0;     // heads that stay in each layer; 0: all
  static Fields<PruneOptions> fields();
};

// Indices of the layers that stay of `count`: "first:N" the first N, "every:K" layers 0, K, 2K, ..., or a list "0,2,5"
// in rising order; empty keeps all. Errors: UserError at `where` for anything else, and layers that are not there.
std::vector<int64_t> layers_to_keep(const std::string& choice, int64_t count, const std::string& where);

// The pruned model, fp32 parameters of its own. A neuron counts as the product of the norms of its row in the up (and
// gate) matrix and its column in the down matrix; a head as that of its value rows and output columns. Neurons, and
// heads of Llama (whole groups that share keys), are chosen in each layer by itself; T5's heads, which share one bias
// of positions, are the same in all layers of a stack. Order is kept. Errors (UserError): more than there is, families
// whose files cannot hold the shape (heads of GPT-2, GPT-NeoX and BLOOM, BLOOM's feed-forward width), a number of heads
// that splits a group.
std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options);

}  // namespace draftsmith::model
