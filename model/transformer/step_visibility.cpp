#include "model/transformer/step_visibility.h"

namespace draftsmith::model {

void self_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys) {
  keys.first = layout.base;
  keys.queries = layout.new_tokens;
  keys.growing = !layout.siblings;
  keys.own_slot = layout.siblings;
  keys.block = state.block();
  keys.cache_row = state.cache_rows();
  for (int64_t& first : keys.first) first += layout.siblings ? 0 : keys.block;
}

void cross_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys) {
  keys.cache_row = state.source_of_row();
  keys.queries = layout.new_tokens;
  keys.growing = false;
  keys.own_slot = false;
  keys.block = 1;
  keys.first.clear();
  for (size_t b = 0; b < keys.cache_row.size(); ++b) {
    keys.first.push_back(state.source_length(static_cast<int64_t>(b)));
  }
}

}  // namespace draftsmith::model
