// The page's text: escaping, and its own pieces. tests/tools/report_page_test.py opens it in a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "evaluate/report/page_texts.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith::evaluate {
namespace {

using testing::HasSubstr;
using testing::Not;

Results results_of_one_task(const TaskResult& task) {
  Results results;
  results.suite = "s";
  results.tasks = {task};
  return results;
}

TEST(ReportPage, HoldsAllThatItNeeds) {
  const std::string page =
      report_html(results_of_one_task(made_task({made_lossless("assisted.small", "assisted", 2)})));
  for (const char* piece : {"name=\"viewport\"", "prefers-color-scheme: dark", "@media print", "d3-scale",
                            "Redistributions in binary form must reproduce", "THE SOFTWARE IS PROVIDED \"AS IS\""}) {
    EXPECT_THAT(page, HasSubstr(piece));
  }
  for (const char* elsewhere : {"src=", "<link", "@import", "url("}) EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
}

TEST(ReportPage, TextsOfTheProgramEndNoElementEarly) {
  EXPECT_EQ(page_texts().size(), 12u + 4u);  // D3's parts and our files
  for (const PageText& file : page_texts()) {
    EXPECT_THAT(std::string(file.text), Not(HasSubstr("</s"))) << file.name;
    if (file.name.ends_with("LICENCE")) {
      EXPECT_THAT(std::string(file.text), Not(HasSubstr("*/")));
    }
  }
}

TEST(ReportPage, NamesAreEscaped) {
  const std::string name = "</script><script>alert('1')</script>";
  Results results = results_of_one_task(made_task({made_lossless(name, name, 2, name)}));
  results.suite = name;
  results.tasks[0].name = name;
  results.environment = {{name, name}, {"command", name}, {"cpu", name}};
  results.options = {{name, name}};
  results.tasks[0].examples = {{.line = 0,
                                .source = name,
                                .reference = name,
                                .greedy = name,
                                .outputs = {{name, {{name, "drafted"}, {name, name}}}}}};
  const std::string page = report_html(results);
  EXPECT_THAT(page, Not(HasSubstr(name)));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;script&gt;alert('1')"));
}

TEST(ReportPage, IllFormedTextIsReplaced) {
  Results results = results_of_one_task(made_task({made_lossless("\xff\xfe", "assisted", 2)}));
  results.suite = "a\xc3";
  const std::string page = report_html(results);
  EXPECT_FALSE(invalid_utf8_offset(page).has_value());
  EXPECT_THAT(page, HasSubstr(std::string(kReplacementText)));
}

TEST(ReportPage, ManyNotesAreFoldedButNoErrors) {
  TaskResult task = made_task({});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    SettingResult setting = made_setting(name, "bild", 2, 29, "small");
    setting.exactness.emplace().lines = 10;
    setting.exactness->differing_lines = 3;
    task.settings.push_back(setting);
  }
  task.settings[0].measurement_error = "something is wrong";
  const std::string page = report_html(results_of_one_task(task));
  const size_t folded = page.find("<details><summary>5 notes</summary>");
  ASSERT_NE(folded, std::string::npos);
  EXPECT_LT(page.find("<p class=\"error\">! a: something is wrong"), folded);
}

}  // namespace
}  // namespace draftsmith::evaluate
