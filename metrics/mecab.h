// Words of a text by MeCab, whose library is loaded at run time, so that only those who need it install it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace draftsmith::metrics {

// MeCab with one dictionary. Texts may be parsed by several threads; they take turns.
class Mecab {
 public:
  // Loads `library`, a path or a name that the system's loader finds, and the dictionary in a directory.
  // Returns nothing and sets `why` if the library cannot be loaded or lacks a function.
  // Errors: UserError for a directory that the library cannot read as a dictionary.
  static std::unique_ptr<const Mecab> load(const std::string& library, const std::filesystem::path& dictionary,
                                           std::string& why);
  ~Mecab();
  Mecab(const Mecab&) = delete;
  Mecab& operator=(const Mecab&) = delete;

  // Returns the version of the library: "0.996", or "0.996/ko-0.9.2" of the Korean variant.
  std::string version() const;
  // Returns the number of words in the dictionary.
  int64_t words() const;
  // Returns the words of a text. Errors: RunError where MeCab fails.
  std::vector<std::string> parse(const std::string& text) const;

 private:
  struct State;
  explicit Mecab(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace draftsmith::metrics
