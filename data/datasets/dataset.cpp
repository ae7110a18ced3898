#include "data/datasets/dataset.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/registry.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSacrebleu = "sacrebleu/";

// Returns the entries of a folder whose names do not begin with "_" or ".", sorted; none if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.front() != '_' && name.front() != '.') entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_plain_text(const std::string& ending) {
  return ending == ".txt" || ending == ".raw" || ending == ".tokens";
}

// Returns whether a file's ending may be a language: two or three small letters that no other kind of file has.
bool is_language(const std::string& ending) {
  static const std::set<std::string> kOthers{".md",  ".gz",  ".xz",  ".py",  ".sh",  ".h5",  ".csv",
                                             ".tsv", ".zip", ".bin", ".xml", ".log", ".pdf", ".npy"};
  const bool letters = std::all_of(ending.begin() + (ending.empty() ? 0 : 1), ending.end(),
                                   [](unsigned char c) { return c < 0x80 && std::islower(c); });
  return letters && (ending.size() == 3 || ending.size() == 4) && !kOthers.contains(ending);
}

// Returns the name of a text: FOLDER/STEM, without the folder's own name at the beginning of STEM.
std::string dataset_name(const std::string& folder, std::string stem) {
  if (folder.empty()) return stem;
  for (const char* joint : {".", "_", "-"}) {
    if (stem.starts_with(folder + joint)) {
      stem.erase(0, folder.size() + 1);
      break;
    }
  }
  return folder + "/" + stem;
}

using Languages = std::map<std::string, fs::path>;  // by "de"

std::map<std::string, Direction> directions_between(const Languages& languages) {
  std::map<std::string, Direction> directions;
  for (const auto& [from, source] : languages) {
    for (const auto& [into, target] : languages) {
      if (from != into) directions[from + "-" + into] = {source, {target}};
    }
  }
  return directions;
}

void add_files(const fs::path& folder, const std::string& folder_name, std::vector<NamedDataset>& sets) {
  std::map<std::string, Languages> parallel;  // by stem
  for (const fs::path& file : entries_of(folder)) {
    const std::string ending = file.extension().string();
    if (!fs::is_regular_file(file)) continue;
    if (ending == ".jsonl" || is_plain_text(ending)) {
      sets.push_back({.name = dataset_name(folder_name, file.stem().string()), .file = file});
    } else if (is_language(ending)) {
      parallel[file.stem().string()][ending.substr(1)] = file;
    }
  }
  for (const auto& [stem, languages] : parallel) {
    if (languages.size() < 2) continue;
    sets.push_back({.name = dataset_name(folder_name, stem), .directions = directions_between(languages)});
  }
}

std::vector<std::string> names_of_sets(const std::vector<NamedDataset>& sets) {
  std::vector<std::string> names;
  for (const NamedDataset& set : sets) names.push_back(set.name);
  return names;
}

// Returns the set of that name, or the only one of a folder of that name; nullptr if there is none.
const NamedDataset* find_in(const std::vector<NamedDataset>& sets, const std::string& name) {
  const NamedDataset* found = nullptr;
  int64_t in_folder = 0;
  for (const NamedDataset& set : sets) {
    if (set.name == name) return &set;
    if (!set.name.starts_with(name + "/")) continue;
    found = &set;
    ++in_folder;
  }
  return in_folder == 1 ? found : nullptr;
}

NamedDataset find_sacrebleu(const std::string& name) {
  const fs::path folder = sacrebleu_folder();
  const std::vector<NamedDataset> sets = sacrebleu_datasets(folder);
  if (const NamedDataset* found = find_in(sets, name)) return *found;
  const std::vector<std::string> known = names_of_sets(sets);
  const std::string near = nearest(name, known);
  const std::string test_set = name.substr(std::string(kSacrebleu).size());
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  throw UserError({.where = name,
                   .what = "sacreBLEU has not downloaded this test set on this machine",
                   .expected = "files " + test_set + ".LANGUAGES.src and .ref in " + (folder / test_set).string(),
                   .found = list.empty() ? "no test set there" : list,
                   .hint = near.empty()
                               ? "`sacrebleu -t " + test_set + " -l de-en --echo src` downloads it, with your languages"
                               : "did you mean '" + near + "'?"});
}

}  // namespace

const Direction& NamedDataset::direction(const std::string& wanted) const {
  if (wanted.empty() && directions.size() == 1) return directions.begin()->second;
  if (const auto found = directions.find(wanted); found != directions.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [key, files] : directions) known.push_back(key);
  Problem problem = unknown_name("direction", wanted, known);
  problem.where = "data set " + name;
  if (wanted.empty()) {
    problem.what = "parallel text needs a direction";
    problem.found = "no `direction`";
    problem.hint = "write direction = \"" + known.front() + "\" beside `dataset`";
  }
  throw UserError(problem);
}

fs::path data_folder() {
  const char* chosen = std::getenv(kDataVariable);
  return chosen && *chosen ? chosen : "../shared/data";
}

fs::path sacrebleu_folder() {
  if (const char* chosen = std::getenv("SACREBLEU"); chosen && *chosen) return chosen;
  const char* home = std::getenv("HOME");
  return fs::path(home ? home : "") / ".sacrebleu";
}

std::vector<NamedDataset> datasets_in(const fs::path& folder) {
  std::vector<NamedDataset> sets;
  add_files(folder, "", sets);
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry)) add_files(entry, entry.filename().string(), sets);
  }
  std::sort(sets.begin(), sets.end(), [](const NamedDataset& a, const NamedDataset& b) { return a.name < b.name; });
  return sets;
}

std::vector<NamedDataset> sacrebleu_datasets(const fs::path& folder) {
  std::vector<NamedDataset> sets;
  for (const fs::path& test_set : entries_of(folder)) {
    // Files are TEST-SET.de-en.src, .ref and, of several references, .ref-A.
    NamedDataset set{.name = kSacrebleu + test_set.filename().string()};
    for (const fs::path& file : entries_of(test_set)) {
      const std::string field = file.extension().string();
      const std::string languages = file.stem().extension().string();
      if (languages.empty() || languages.find('-') == std::string::npos) continue;
      Direction& direction = set.directions[languages.substr(1)];
      if (field == ".src") direction.source = file;
      if (field.starts_with(".ref")) direction.references.push_back(file);
    }
    std::erase_if(set.directions,
                  [](const auto& entry) { return entry.second.source.empty() || entry.second.references.empty(); });
    if (set.parallel()) sets.push_back(std::move(set));
  }
  return sets;
}

NamedDataset find_dataset(const std::string& name) {
  if (name.starts_with(kSacrebleu)) return find_sacrebleu(name);
  const fs::path folder = data_folder();
  const std::vector<NamedDataset> sets = datasets_in(folder);
  if (const NamedDataset* found = find_in(sets, name)) return *found;
  const bool missing = !fs::is_directory(folder);
  Problem problem = unknown_name("data set", name, names_of_sets(sets));
  problem.where = "data folder " + folder.string() + (missing ? " (not there)" : "");
  if (problem.hint.empty()) {
    problem.hint =
        missing ? std::string("set ") + kDataVariable + " to the folder with your data"
                : "`draftsmith data list` shows what is there; " + std::string(kDataVariable) + " names another folder";
  }
  throw UserError(problem);
}

std::string document_separator(const fs::path& file) {
  constexpr std::streamsize kBeginning = 1 << 16;  // bytes
  const std::string separator = "<|endoftext|>";
  std::string text(static_cast<size_t>(kBeginning), '\0');
  std::ifstream input(file, std::ios::binary);
  input.read(text.data(), kBeginning);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, input.gcount())));
  const bool found = text.starts_with(separator + "\n") || text.find("\n" + separator + "\n") != std::string::npos;
  return found ? separator : "";
}

}  // namespace draftsmith::data
