// Whether a teacher's cache is what a stage may distil from.
#pragma once

#include <filesystem>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"

namespace draftsmith::recipes {

// Opens and checks a cache for training on `corpus`. Errors (UserError, all at once, each naming both sides): one made
// from another corpus or with other counts of examples and positions, with another tokenizer or, where `teacher` is a
// model directory, by another teacher.
data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher);

}  // namespace draftsmith::recipes
