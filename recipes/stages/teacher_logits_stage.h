// Teacher caches in recipes. kind = "teacher-logits" stores the teacher's next-token distributions for a corpus's
// targets, so that students are distilled without running the teacher: teacher_logits.h5
// (data/teacher/teacher_cache.h). It goes on with the missing shards. Stages that distil open the cache here.
#pragma once

#include <filesystem>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"

namespace draftsmith::recipes {

// Opens and checks a cache for training on `corpus`. Errors: a UserError with all problems, each naming both sides:
// another corpus, another tokenizer or, if `teacher` is given, another teacher.
data::TeacherCache open_teacher_cache(const std::filesystem::path& file, const data::Corpus& corpus,
                                      const std::optional<std::filesystem::path>& teacher);

}  // namespace draftsmith::recipes
