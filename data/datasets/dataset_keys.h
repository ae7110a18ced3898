// The key `dataset` of a suite's tasks and of corpora: fills in the keys that follow from a data set's name.
//
//   task = { dataset = "multi30k/test_2016_flickr", direction = "de-en" }    gets name, source, references and metric
//   [[task]] with dataset = "spec_bench"                                     becomes a task for each category
//
// A key that is there wins over the data set's.
#pragma once

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith::data {

// How paths of the data folder are written: as they are, or as recipes write them, "$DATA/...".
enum class DataPaths { kReal, kPortable };

// Makes a suite's single table `task` a list, and gives tasks without a name that of their data set, so that overlays
// find them.
void name_dataset_tasks(toml::table& suite);

// Renames the tasks that name_dataset_tasks() named in `before` and that have another data set since then.
void rename_dataset_tasks(const toml::table& before, toml::table& suite);

// Fills in the tasks of a suite that have a data set. One with categories becomes a task for each category, or for each
// of `categories`, unless by_category = false; Spec-Bench's eight categories from MT-Bench are one, "mt_bench".
// Adds problems for unknown names, directions and categories, for text whose references are fewer than its lines, for
// lines without source or reference, and for keys that say twice where text comes from; the tasks are then as before.
void fill_in_dataset_tasks(toml::table& suite, DataPaths paths, Problems& problems);

// Fills in a corpus's keys: those of TextInput. Adds problems as above.
void fill_in_dataset_corpus(toml::table& corpus, DataPaths paths, Problems& problems);

}  // namespace draftsmith::data
