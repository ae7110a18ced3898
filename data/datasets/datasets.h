// Data sets by name: text in the data folder.
//
//   multi30k/test_2016_flickr   test_2016_flickr.de and .en in the folder multi30k of the data folder
//   dialogsum/dev               dialogsum/dialogsum.dev.jsonl: the folder's name is left out of the file's
//   spec_bench                  a folder with a single data set names it
//
// The key `dataset` of a suite's task and of a corpus fills in the keys that follow from the name; a key that is there
// wins. A path "$DATA/multi30k/val.de" is multi30k/val.de in the data folder.
#pragma once

#include <string>

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith::data {

// Environment variable that names the data folder; it is ../shared/data otherwise.
inline constexpr const char* kDataVariable = "DRAFTSMITH_DATA";

// Returns the path that a text names: the data folder in place of "$DATA" at its beginning.
std::string real_path(const std::string& text);
// Returns the problem of a path that does not exist, as `text` in the file and line `where` names it. Its hint says
// what the path is relative to, or that the data folder is missing.
Problem missing_path(const std::string& text, const std::string& where);

// Makes a suite's single table `task` a list, whose tasks overlays find by name or by data set.
void list_tasks(toml::table& suite);

// Fills in the tasks of a suite that have a data set. One with `categories` becomes a task for each of them. Paths in
// the data folder are written as "$DATA/...". Adds problems for unknown names and directions, and for keys that say
// twice where text comes from.
void fill_in_dataset_tasks(toml::table& suite, Problems& problems);
// Fills in a corpus's keys: those of TextInput. Adds problems as above.
void fill_in_dataset_corpus(toml::table& corpus, Problems& problems);

}  // namespace draftsmith::data
