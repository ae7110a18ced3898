#include "model/transformer/draft_vocabulary.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/utf8.h"
#include "model/families/family.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"

namespace draftsmith::model {

VocabularyRows::VocabularyRows(const TransformerConfig& config, at::Device device) : vocabulary_(config.vocabulary) {
  const DraftVocabulary& pruned = config.draft_vocabulary;
  if (pruned.ids.empty()) return;
  const auto rows = static_cast<int64_t>(pruned.ids.size());
  const auto stand_in = std::lower_bound(pruned.ids.begin(), pruned.ids.end(), pruned.stand_in);
  if (stand_in == pruned.ids.end() || *stand_in != pruned.stand_in || pruned.ids.back() >= vocabulary_) {
    throw std::logic_error("the ids of a pruned vocabulary do not fit together");
  }
  const at::Tensor ids = at::tensor(pruned.ids, at::kLong);
  const at::Tensor row_of = at::full({vocabulary_}, stand_in - pruned.ids.begin(), at::kLong);
  row_of.index_copy_(0, ids, at::arange(rows, at::kLong));
  ids_ = ids.to(device);
  row_of_ = row_of.to(device);
}

at::Tensor VocabularyRows::of(const at::Tensor& tokens) const {
  return pruned() ? row_of_.index_select(0, tokens.reshape({-1})).view(tokens.sizes()) : tokens;
}

at::Tensor VocabularyRows::has(const at::Tensor& tokens) const {
  if (!pruned()) return at::ones(tokens.sizes(), tokens.options().dtype(at::kBool));
  return ids_.index_select(0, of(tokens).reshape({-1})).view(tokens.sizes()).eq(tokens);
}

at::Tensor VocabularyRows::spread(const at::Tensor& values, double elsewhere) const {
  if (!pruned()) return values;
  std::vector<int64_t> shape = values.sizes().vec();
  shape.back() = vocabulary_;
  if (values.is_cpu() && values.scalar_type() == at::kFloat && !values.requires_grad()) {
    // On this thread: LibTorch's threads, which its operators wake for so many numbers, disturb the team's next step.
    const at::Tensor all = at::empty(shape, values.options()), from = values.contiguous();
    std::fill_n(all.mutable_data_ptr<float>(), all.numel(), static_cast<float>(elsewhere));
    const auto* ids = ids_.const_data_ptr<int64_t>();
    const int64_t kept = ids_.numel();
    const float* row = from.const_data_ptr<float>();
    float* to = all.mutable_data_ptr<float>();
    for (int64_t left = from.numel(); left > 0; left -= kept, row += kept, to += vocabulary_) {
      for (int64_t i = 0; i < kept; ++i) to[ids[i]] = row[i];
    }
    return all;
  }
  return at::full(shape, elsewhere, values.options().requires_grad(false)).index_copy_(-1, ids_, values);
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kSize = "draft_vocab_size";
constexpr const char* kStandIn = "draft_unknown_token_id";
constexpr const char* kPruneAgain = "the maps must be those the model was pruned with; prune it again";

fs::path maps_file(const fs::path& directory) {
  return directory / "draftsmith" / "vocabulary.safetensors";
}

// Reads and checks the maps' file. Returns the target's ids of the rows; none, with problems, for maps that do not fit.
std::vector<int64_t> read_maps(const fs::path& path, int64_t rows, int64_t vocabulary, Problems& problems) {
  const SafetensorsFile file(path);
  const size_t before = problems.list().size();
  const auto wrong = [&](const std::string& tensor, const std::string& what, const std::string& expected,
                         const std::string& found) {
    problems.add({.where = fmt::format("{}: tensor '{}'", path.string(), printable(tensor)),
                  .what = what,
                  .expected = expected,
                  .found = found,
                  .hint = kPruneAgain});
  };
  const auto text = [](const std::string& dtype, const std::vector<int64_t>& shape) {
    return dtype + " " + shape_text(shape);
  };
  const std::map<std::string, std::string> expected = {{"d2t", text("I64", {rows})},
                                                       {"t2d", text("BOOL", {vocabulary})}};
  for (const auto& [name, type] : expected) {
    const auto entry = file.tensors().find(name);
    const std::string found =
        entry == file.tensors().end() ? "nothing" : text(entry->second.dtype, entry->second.shape);
    if (found != type) wrong(name, "is missing from the maps, or of another type or shape", type, found);
  }
  for (const auto& [name, entry] : file.tensors()) {
    if (!expected.contains(name)) wrong(name, "is not a map of a vocabulary", "d2t and t2d alone", entry.dtype);
  }
  if (problems.list().size() > before) return {};

  std::vector<int64_t> ids(static_cast<size_t>(rows));
  std::memcpy(ids.data(), file.bytes("d2t").data(), file.bytes("d2t").size());
  for (size_t row = 0; row < ids.size(); ++row) {
    const auto place = static_cast<int64_t>(row);
    const int64_t offset = ids[row];
    const int64_t least = row == 0 ? 0 : ids[row - 1] + 1;
    if (offset < least - place || offset >= vocabulary - place) {
      wrong("d2t", fmt::format("row {} stands for no id, or for one out of order", row),
            fmt::format("an offset in {}..{}: ids rise, and are below {}", least - place, vocabulary - 1 - place,
                        vocabulary),
            std::to_string(offset));
      return {};
    }
    ids[row] = place + offset;
  }
  const auto has_row = file.bytes("t2d");
  for (size_t id = 0; id < has_row.size(); ++id) {
    const bool mapped = std::binary_search(ids.begin(), ids.end(), static_cast<int64_t>(id));
    if (has_row[id] == std::byte{mapped}) continue;
    wrong("t2d", fmt::format("disagrees with d2t on id {}", id), mapped ? "true" : "false",
          std::to_string(std::to_integer<int>(has_row[id])));
    return {};
  }
  return ids;
}

}  // namespace

DraftVocabulary read_draft_vocabulary(const fs::path& directory, ConfigReader& reader, const TransformerConfig& config,
                                      Problems& problems) {
  const fs::path file = maps_file(directory);
  if (!reader.has(kSize)) {
    if (fs::exists(file)) {
      problems.add({.where = file.string(),
                    .what = "maps a pruned vocabulary that config.json does not mention",
                    .expected = std::string(kSize) + " in config.json",
                    .found = "no such key",
                    .hint = kPruneAgain});
    }
    return {};
  }
  DraftVocabulary pruned;
  const size_t before = problems.list().size();
  const int64_t rows = reader.get_int(kSize, {1, config.vocabulary}, 0);
  pruned.stand_in = reader.get_int(kStandIn, {0, config.vocabulary - 1}, config.pad);
  if (problems.list().size() > before) return {};
  pruned.ids = read_maps(file, rows, config.vocabulary, problems);
  if (!pruned.ids.empty() && !std::binary_search(pruned.ids.begin(), pruned.ids.end(), pruned.stand_in)) {
    reader.wrong(kStandIn, "is an id without a row, so it cannot stand in for others", "an id that d2t maps to");
    return {};
  }
  return pruned;
}

void write_draft_vocabulary(const TransformerConfig& config, const fs::path& directory,
                            nlohmann::ordered_json& config_json) {
  const DraftVocabulary& pruned = config.draft_vocabulary;
  if (pruned.ids.empty()) return;
  const auto rows = static_cast<int64_t>(pruned.ids.size());
  const at::Tensor ids = at::tensor(pruned.ids, at::kLong);
  const at::Tensor has_row = at::zeros({config.vocabulary}, at::kBool).index_fill_(0, ids, true);
  make_directories(maps_file(directory).parent_path());
  write_safetensors(maps_file(directory),
                    {{"d2t", ids - at::arange(rows, at::kLong), at::kLong}, {"t2d", has_row, at::kBool}});
  config_json[kSize] = rows;
  config_json[kStandIn] = pruned.stand_in;
}

}  // namespace draftsmith::model
