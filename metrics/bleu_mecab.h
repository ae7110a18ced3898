// BLEU's tokenizers ja-mecab and ko-mecab, as in sacreBLEU 2.6: MeCab with the IPA dictionary for Japanese, and its
// Korean variant with mecab-ko-dic.
//
// A dictionary is looked for in the directory that DRAFTSMITH_MECAB_JA or DRAFTSMITH_MECAB_KO names, in Debian's
// places, and in the Python packages ipadic and mecab_ko_dic of $VIRTUAL_ENV, the user and the system. The library is
// libmecab.so.2 of the system, or that of the Python package mecab-python3 or mecab-ko beside the dictionary's.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "metrics/bleu_tokenizer.h"

namespace draftsmith::metrics {

// Errors: UserError that says what was looked for and what to install, if the library or the dictionary is missing, or
// if the dictionary is not the one that sacreBLEU uses.
std::unique_ptr<const BleuTokenizer> make_japanese_tokenizer();
std::unique_ptr<const BleuTokenizer> make_korean_tokenizer();

// Returns the folders of Python packages in which dictionaries are looked for: of $VIRTUAL_ENV, of the user and of the
// system, those that exist.
std::vector<std::filesystem::path> python_package_folders();

}  // namespace draftsmith::metrics
