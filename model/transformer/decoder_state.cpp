#include "model/transformer/decoder_state.h"

#include <atomic>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/device_tensors.h"
#include "base/util.h"

namespace draftsmith::model {
namespace {

// States that a model keeps: a whole batch's, and one of another size.
constexpr size_t kMostStates = 2;

}  // namespace

void ResidentStates::put(std::unique_ptr<DecoderState> state) {
  const std::scoped_lock lock(mutex_);
  if (state->era() != era_ || state->is_repeated()) return;
  states_.push_front(std::move(state));
  if (states_.size() > kMostStates) states_.pop_back();
}

std::unique_ptr<DecoderState> ResidentStates::take(int64_t rows, int64_t capacity) {
  const std::scoped_lock lock(mutex_);
  auto best = states_.end();
  for (auto state = states_.begin(); state != states_.end(); ++state) {
    const bool smaller = best == states_.end() || (*state)->capacity() < (*best)->capacity();
    if ((*state)->fits(rows, capacity) && smaller) best = state;
  }
  if (best == states_.end()) return nullptr;
  std::unique_ptr<DecoderState> found = std::move(*best);
  states_.erase(best);
  found->begin_again();
  return found;
}

void ResidentStates::began(DecoderState& state) {
  const std::scoped_lock lock(mutex_);
  state.set_era(era_);
}

void ResidentStates::clear() {
  const std::scoped_lock lock(mutex_);
  states_.clear();
  ++era_;
}

namespace {

// A slot past the capacity that takes what is written for tokens that don't matter.
constexpr int64_t kSpareSlots = 1;
// Slots that a state on a CPU begins with; they double when a row needs more, so that a high limit costs no memory.
constexpr int64_t kFirstSlots = 64;
// On devices sources have a multiple of so many slots, so that the next ones fit in too.
constexpr int64_t kSourceSlots = 64;

// Returns one more than the highest slot that a new token of the layout takes.
int64_t slots_needed(const StepLayout& layout) {
  int64_t needed = 0;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    needed = std::max(needed, layout.base[b] + layout.new_tokens[b]);
  }
  return needed;
}

}  // namespace

DecoderState::DecoderState(const DecoderStateShape& shape)
    : capacity_(shape.capacity), block_(shape.block), first_rows_(shape.rows) {
  if (shape.rows < 0 || shape.capacity < 1 || shape.layers < 1) {
    throw std::logic_error("a decode state needs a capacity and layers");
  }
  replace_memory();
  const bool grows = shape.options.device().is_cpu();
  const int64_t slots = (grows ? std::min(kFirstSlots, shape.capacity) : shape.capacity) + kSpareSlots;
  const std::vector<int64_t> sizes{shape.rows, shape.heads.key_values(), slots, shape.heads.width};
  cache_rows_.resize(static_cast<size_t>(shape.rows));
  std::iota(cache_rows_.begin(), cache_rows_.end(), 0);
  for (int64_t i = 0; i < shape.layers; ++i) {
    layers_.push_back({at::zeros(sizes, shape.options), at::zeros(sizes, shape.options),
                       std::vector<int64_t>(static_cast<size_t>(shape.rows), 0)});
  }
}

void DecoderState::check_rows(size_t count) const {
  if (static_cast<int64_t>(count) != rows()) {
    throw std::logic_error("one number for each row of the decode state is needed");
  }
}

void DecoderState::check_layers(LayerRange layers) const {
  if (layers.begin < 0 || layers.end > static_cast<int64_t>(layers_.size()) || layers.begin > layers.end) {
    throw std::logic_error("layer range outside the decoder");
  }
}

int64_t DecoderState::length(int64_t row) const {
  int64_t shortest = capacity_;
  for (const LayerCache& layer : layers_) {
    shortest = std::min(shortest, layer.lengths.at(static_cast<size_t>(row)));
  }
  return shortest;
}

void DecoderState::rollback(std::span<const int64_t> lengths) {
  check_rows(lengths.size());
  for (LayerCache& layer : layers_) {
    for (size_t b = 0; b < layer.lengths.size(); ++b) {
      layer.lengths[b] = std::max<int64_t>(0, std::min(layer.lengths[b], lengths[b]));
    }
  }
}

void DecoderState::select_rows(std::span<const int64_t> rows) {
  const bool in_place = selects_in_place(rows);
  keep_rows(cache_rows_, rows);
  for (LayerCache& layer : layers_) keep_rows(layer.lengths, rows);
  if (!in_place) {
    replace_memory();
    const at::Tensor index = at::tensor(cache_rows_, at::kLong).to(layers_.front().keys.device());
    for (LayerCache& layer : layers_) {
      layer.keys = layer.keys.index_select(0, index);
      layer.values = layer.values.index_select(0, index);
    }
    std::iota(cache_rows_.begin(), cache_rows_.end(), 0);
  }
  if (!source_of_row_.empty()) keep_rows(source_of_row_, rows);
}

bool DecoderState::selects_in_place(std::span<const int64_t> rows) const {
  const at::Tensor& keys = layers_.front().keys;
  const bool by_row = !keys.is_cpu() || keys.scalar_type() == at::kFloat;
  return by_row && std::set(rows.begin(), rows.end()).size() == rows.size();
}

StepLayout DecoderState::layout_of(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer) const {
  StepLayout layout;
  layout_of(new_tokens, tokens, layer, layout);
  return layout;
}

void DecoderState::layout_of(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer,
                             StepLayout& layout) const {
  check_rows(new_tokens.size());
  layout.tokens = tokens;
  layout.base = cache(layer).lengths;
  layout.new_tokens.assign(new_tokens.begin(), new_tokens.end());
  for (const int64_t count : layout.new_tokens) {
    if (count < 0 || count > tokens) {
      throw std::logic_error("a row's new tokens must be 0 to the step's number of tokens");
    }
  }
  if (block_ == 1) return;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    if (layout.base[b] % block_ != 0 || layout.new_tokens[b] % block_ != 0) {
      throw std::logic_error("a step of a model of block attention reads whole blocks");
    }
  }
}

StepLayout DecoderState::append(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer) const {
  return placed(layout_of(new_tokens, tokens, layer));
}

StepLayout DecoderState::siblings(std::span<const int64_t> counts, int64_t branches, int64_t layer) const {
  StepLayout layout = layout_of(counts, branches, layer);
  layout.siblings = true;
  return placed(std::move(layout));
}

PlacedRow DecoderState::placed_row(size_t b) const {
  PlacedRow row{.cache_row = cache_rows_[b]};
  if (source_of_row_.empty()) return row;
  row.source_row = source_of_row_[b];
  row.source_length = source_length(static_cast<int64_t>(b));
  return row;
}

at::Tensor DecoderState::packed_places(const StepLayout& layout) const {
  std::vector<PlacedRow> rows;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    rows.push_back(placed_row(b));
    rows.back().base = layout.base[b];
    rows.back().new_tokens = layout.new_tokens[b];
  }
  const at::Tensor packed = at::empty({std::ssize(rows) * (4 * layout.tokens + 3)}, at::kLong);
  const int64_t spare = std::max(capacity_, slots_needed(layout));  // siblings may pass the capacity
  auto* places = packed.mutable_data_ptr<int64_t>();
  write_places(rows, layout.tokens, layout.siblings, spare, places);
  if (block_ == 1) return packed;
  const int64_t all = std::ssize(rows) * layout.tokens;
  for (int64_t i = 0; i < all; ++i) places[2 * all + i] = (places[all + i] / block_ + 1) * block_;  // prefix
  return packed;
}

DevicePlaces DecoderState::device_places() const {
  const at::Tensor host = at::empty({3, rows()}, at::kLong);
  auto to = host.accessor<int64_t, 2>();
  for (int64_t b = 0; b < rows(); ++b) {
    const PlacedRow row = placed_row(static_cast<size_t>(b));
    to[0][b] = row.cache_row;
    to[1][b] = row.source_row;
    to[2][b] = row.source_length;
  }
  return {host, memory_};
}

StepLayout DecoderState::device_layout(const DeviceStepInput& input) const {
  StepLayout layout;
  layout.tokens = input.tokens.size(1);
  layout.base.assign(static_cast<size_t>(rows()), 0);
  layout.new_tokens = layout.base;
  layout.recorded = true;
  return placed(std::move(layout),
                step_places(input.base, input.new_tokens, input.rows, input.tokens.size(1), capacity_));
}

bool DecoderState::fits(int64_t rows, int64_t capacity) const {
  return first_rows_ == rows && !is_repeated() && capacity <= capacity_;
}

bool DecoderState::is_repeated() const {
  return layers_.front().keys.size(0) != first_rows_;
}

void DecoderState::begin_again() {
  cache_rows_.resize(static_cast<size_t>(first_rows_));
  std::iota(cache_rows_.begin(), cache_rows_.end(), 0);
  for (LayerCache& layer : layers_) {
    layer.lengths.assign(cache_rows_.size(), 0);
    layer.keys.zero_();  // a NaN of before would pass masks
    layer.values.zero_();
  }
  source_lengths_.clear();
  source_of_row_.clear();
}

void DecoderState::replace_memory() {
  static std::atomic<uint64_t> states{0};
  graphs_.clear();
  memory_ = ++states;
}

StepLayout DecoderState::placed(StepLayout layout, const at::Tensor& packed) const {
  const int64_t all = rows() * layout.tokens;
  const auto of_tokens = [&](int64_t i) { return packed.narrow(0, i * all, all).view({rows(), layout.tokens}); };
  const auto of_rows = [&](int64_t i) { return packed.narrow(0, 4 * all + i * rows(), rows()); };
  layout.places = {of_tokens(0), of_tokens(1), of_tokens(2), of_rows(0), {}, {}, of_rows(2)};
  if (!source_of_row_.empty()) {
    layout.places.source_length = of_tokens(3);
    layout.places.source_row = of_rows(1);
  }
  return layout;
}

StepLayout DecoderState::placed(StepLayout layout) const {
  const at::Device device = layers_.front().keys.device();
  if (device.is_cpu()) return layout;
  const at::Tensor packed = packed_places(layout).to(device, /*non_blocking=*/true);
  return placed(std::move(layout), packed);
}

void DecoderState::check(LayerRange layers, const StepLayout& layout) const {
  check_layers(layers);
  check_rows(layout.base.size());
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    for (size_t b = 0; b < layout.base.size(); ++b) {
      const int64_t added = layout.siblings ? std::min<int64_t>(1, layout.new_tokens[b]) : layout.new_tokens[b];
      if (added > 0 && cache(i).lengths[b] != layout.base[b]) {
        throw std::logic_error("a decoder layer stands at another length than the step's layout");
      }
      if (layout.base[b] + added > capacity_) {
        throw std::logic_error("a step passes the capacity of its decode state");
      }
    }
  }
}

void DecoderState::reserve(LayerCache& cache, int64_t slots) {
  const int64_t present = cache.keys.size(2);
  if (slots <= present) {
    return;
  }
  replace_memory();
  for (at::Tensor* part : {&cache.keys, &cache.values}) {
    at::Tensor larger = at::zeros({part->size(0), part->size(1), slots, part->size(3)}, part->options());
    larger.narrow(2, 0, present).copy_(*part);
    *part = larger;
  }
}

at::Tensor DecoderState::logits_of(at::IntArrayRef shape) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(shape)) * sizeof(float);
  const bool unshared = logits_.defined() && logits_.use_count() == 1 && logits_.storage().use_count() == 1;
  if (unshared && bytes <= logits_.storage().nbytes()) {
    logits_.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  } else {
    logits_ = host_empty(shape, at::kFloat);
  }
  return logits_;
}

void DecoderState::make_room(int64_t layer, const StepLayout& layout) {
  LayerCache& cache = layers_.at(static_cast<size_t>(layer));
  const int64_t needed = slots_needed(layout);
  if (const int64_t present = cache.keys.size(2); needed + kSpareSlots > present) {
    reserve(cache, std::max(needed, std::min(2 * present, capacity_)) + kSpareSlots);
  }
}

void DecoderState::write(int64_t layer, const KeyValue& key_value, const StepLayout& layout) {
  make_room(layer, layout);
  LayerCache& cache = layers_.at(static_cast<size_t>(layer));
  if (const StepPlaces& places = layout.places; places.slot.defined()) {
    write_at(cache.keys, cache.values, key_value.key, key_value.value, places.row, places.slot);
  } else {
    write_slots(cache.keys, cache_rows_, key_value.key, layout);
    write_slots(cache.values, cache_rows_, key_value.value, layout);
  }
}

void DecoderState::advance(LayerRange layers, const StepLayout& layout) {
  for (int64_t i = layers.begin; i < layers.end && !layout.siblings; ++i) {
    std::vector<int64_t>& lengths = layers_.at(static_cast<size_t>(i)).lengths;
    for (size_t b = 0; b < lengths.size(); ++b) lengths[b] += layout.new_tokens[b];
  }
}

void DecoderState::select_branch(LayerRange layers, const StepLayout& layout, std::span<const int64_t> chosen) {
  check_rows(chosen.size());
  check(layers, layout);
  if (!layout.siblings) {
    throw std::logic_error("select_branch needs a layout of siblings");
  }
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    LayerCache& cache = layers_[static_cast<size_t>(i)];
    for (size_t b = 0; b < chosen.size(); ++b) {
      const int64_t branch = chosen[b];
      if (branch >= layout.tokens) {
        throw std::logic_error("no such branch");
      }
      if (branch < 0) {
        continue;
      }
      for (const at::Tensor& part : {cache.keys, cache.values}) {
        const at::Tensor row = part.select(0, cache_rows_[b]);  // [H,T,K]
        if (branch > 0) {
          row.select(1, layout.base[b]).copy_(row.select(1, layout.base[b] + branch));
        }
      }
      cache.lengths[b] = layout.base[b] + 1;
    }
  }
}

void DecoderState::set_cross(std::vector<CrossCache> cross, std::vector<int64_t> source_lengths,
                             std::vector<int64_t> source_of_row) {
  check_rows(source_of_row.size());
  take_cross(std::move(cross));
  source_lengths_ = std::move(source_lengths);
  source_of_row_ = std::move(source_of_row);
}

void DecoderState::set_positions(PositionTables tables) {
  replace_memory();
  positions_ = std::move(tables);
}

void DecoderState::take_cross(std::vector<CrossCache> cross) {
  const at::Tensor& given = cross.front().keys;  // [R,H,S,K]
  if (given.is_cpu()) {
    cross_ = std::move(cross);
    return;
  }
  const int64_t length = given.size(2);
  if (cross_.empty() || cross_.front().keys.size(0) != given.size(0) || cross_.front().keys.size(2) < length) {
    replace_memory();
    const int64_t slots = (length + kSourceSlots - 1) / kSourceSlots * kSourceSlots;
    const std::vector<int64_t> sizes{given.size(0), given.size(1), slots, given.size(3)};
    cross_.clear();
    for (size_t i = 0; i < cross.size(); ++i) {
      cross_.push_back({at::zeros(sizes, given.options()), at::zeros(sizes, given.options())});
    }
  }
  for (size_t i = 0; i < cross.size(); ++i) {
    for (const auto& [to, from] : {std::pair{cross_[i].keys, cross[i].keys}, {cross_[i].values, cross[i].values}}) {
      to.narrow(2, 0, length).copy_(from);
      to.narrow(2, length, to.size(2) - length).zero_();
    }
  }
}

int64_t DecoderState::source_length(int64_t row) const {
  return source_lengths_.at(static_cast<size_t>(source_of_row_.at(static_cast<size_t>(row))));
}

}  // namespace draftsmith::model
