#include "model/files/draft_vocabulary_files.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/utf8.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSize = "draft_vocab_size";
constexpr const char* kStandIn = "draft_unknown_token_id";
constexpr const char* kPruneAgain = "the maps must be those the model was pruned with; prune it again";

fs::path maps_file(const fs::path& directory) {
  return directory / "draftsmith" / "vocabulary.safetensors";
}

// Reads and checks the maps' file.
class MapReader {
 public:
  MapReader(const fs::path& file, Problems& problems) : file_(file), problems_(problems) {}

  std::vector<int64_t> read(int64_t rows, int64_t vocabulary) {
    const size_t before = problems_.list().size();
    check("d2t", "I64", rows);
    check("t2d", "BOOL", vocabulary);
    for (const auto& [name, entry] : file_.tensors()) {
      if (name != "d2t" && name != "t2d") wrong(name, "is not a map of a vocabulary", "d2t and t2d alone", entry.dtype);
    }
    if (problems_.list().size() > before) return {};
    const std::vector<int64_t> ids = target_ids(vocabulary);
    if (!ids.empty()) compare(ids);
    return problems_.list().size() > before ? std::vector<int64_t>{} : ids;
  }

 private:
  void wrong(const std::string& tensor, const std::string& what, const std::string& expected,
             const std::string& found) {
    problems_.add({.where = fmt::format("{}: tensor '{}'", file_.file().string(), printable(tensor)),
                   .what = what,
                   .expected = expected,
                   .found = found,
                   .hint = kPruneAgain});
  }

  void check(const std::string& name, const std::string& dtype, int64_t size) {
    const std::string expected = fmt::format("{} {}", dtype, shape_text({size}));
    const auto entry = file_.tensors().find(name);
    if (entry == file_.tensors().end()) return wrong(name, "is missing from the maps", expected, "nothing");
    if (entry->second.dtype == dtype && entry->second.shape == std::vector<int64_t>{size}) return;
    wrong(name, "has another type or shape than config.json asks for", expected,
          entry->second.dtype + " " + shape_text(entry->second.shape));
  }

  std::vector<int64_t> target_ids(int64_t vocabulary) {
    const auto bytes = file_.bytes("d2t");
    std::vector<int64_t> ids(bytes.size() / sizeof(int64_t));
    std::memcpy(ids.data(), bytes.data(), bytes.size());
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
    return ids;
  }

  void compare(const std::vector<int64_t>& ids) {
    const auto has_row = file_.bytes("t2d");
    auto next = ids.begin();
    for (size_t id = 0; id < has_row.size(); ++id) {
      const bool expected = next != ids.end() && *next == static_cast<int64_t>(id);
      next += expected ? 1 : 0;
      if (has_row[id] == std::byte{expected}) continue;
      return wrong("t2d", fmt::format("disagrees with d2t on id {}", id), expected ? "true" : "false",
                   std::to_string(std::to_integer<int>(has_row[id])));
    }
  }

  SafetensorsFile file_;
  Problems& problems_;
};

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
  pruned.ids = MapReader(file, problems).read(rows, config.vocabulary);
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
