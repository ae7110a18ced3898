#include "metrics/mecab.h"

#include <array>
#include <mutex>

#include <dlfcn.h>

#include "base/error.h"
#include "metrics/python_text.h"

namespace draftsmith::metrics {
namespace {

// The beginning of mecab_dictionary_info_t of mecab.h 0.996.
struct DictionaryInfo {
  const char* file;
  const char* charset;
  unsigned int words;
};

// Functions of mecab.h 0.996.
struct Functions {
  void* (*make)(int, char**) = nullptr;
  void (*destroy)(void*) = nullptr;
  const char* (*error)(void*) = nullptr;
  const char* (*version)() = nullptr;
  const DictionaryInfo* (*info)(void*) = nullptr;
  const char* (*parse)(void*, const char*, size_t) = nullptr;
};

template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool find_functions(void* library, Functions& functions) {
  return find_function(library, "mecab_new", functions.make) &&
         find_function(library, "mecab_destroy", functions.destroy) &&
         find_function(library, "mecab_strerror", functions.error) &&
         find_function(library, "mecab_version", functions.version) &&
         find_function(library, "mecab_dictionary_info", functions.info) &&
         find_function(library, "mecab_sparse_tostr2", functions.parse);
}

}  // namespace

struct Mecab::State {
  Functions functions;
  void* tagger = nullptr;
  std::mutex turn;  // a tagger owns the text that it returns
};

Mecab::Mecab(std::unique_ptr<State> state) : state_(std::move(state)) {}

Mecab::~Mecab() {
  state_->functions.destroy(state_->tagger);
}

std::unique_ptr<const Mecab> Mecab::load(const std::string& library, const std::filesystem::path& dictionary,
                                         std::string& why) {
  // The library stays loaded: objects of its own may outlive the tagger.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why = ::dlerror();
    return nullptr;
  }
  auto state = std::make_unique<State>();
  if (!find_functions(handle, state->functions)) {
    why = library + ": not MeCab's library";
    return nullptr;
  }
  // No settings of the user: they could add words of a user's dictionary, which signatures do not tell.
  std::array<std::string, 6> arguments{"mecab", "-r", "/dev/null", "-d", dictionary.string(), "-Owakati"};
  std::array<char*, arguments.size()> pointers{};
  for (size_t i = 0; i < arguments.size(); ++i) pointers[i] = arguments[i].data();
  state->tagger = state->functions.make(static_cast<int>(pointers.size()), pointers.data());
  if (state->tagger == nullptr) {
    const char* error = state->functions.error(nullptr);
    throw UserError({.where = dictionary.string(),
                     .what = "MeCab cannot read the dictionary",
                     .expected = "a directory with sys.dic, unk.dic, matrix.bin, char.bin and dicrc",
                     .found = error == nullptr ? "no message" : std::string(stripped(error))});
  }
  return std::unique_ptr<const Mecab>(new Mecab(std::move(state)));
}

std::string Mecab::version() const {
  return state_->functions.version();
}

int64_t Mecab::words() const {
  const DictionaryInfo* info = state_->functions.info(state_->tagger);
  return info == nullptr ? 0 : info->words;
}

std::vector<std::string> Mecab::parse(const std::string& text) const {
  const std::lock_guard<std::mutex> lock(state_->turn);
  const char* parsed = state_->functions.parse(state_->tagger, text.data(), text.size());
  if (parsed == nullptr) {
    throw RunError(
        {.where = "MeCab", .what = "a text was not parsed", .found = state_->functions.error(state_->tagger)});
  }
  return words_of(parsed);
}

}  // namespace draftsmith::metrics
