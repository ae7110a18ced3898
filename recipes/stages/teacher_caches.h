// Opens teacher caches for stages that distil.
#pragma once

#include <filesystem>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"

namespace draftsmith::recipes {

// Opens and checks a cache for training on `corpus`. Errors: a UserError with all problems, each naming both sides:
// another corpus, other counts of examples and positions, another tokenizer or, if `teacher` is given, another teacher.
data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher);

}  // namespace draftsmith::recipes
