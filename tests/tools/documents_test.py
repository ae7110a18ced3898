"""The documents keep their promises: no empty code block, no test count typed by hand, each study names its recipe."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages of docs/results/ that are not studies.
OTHERS = {"README.md", "machine.md", "benchmarks.md", "gpu.md", "scale.md", "serving.md", "training.md"}
STUDIES = [page for page in sorted((ROOT / "docs/results").glob("*.md")) if page.name not in OTHERS]
# "257 tests", "1,279 tests", "all 40 unit tests", "3 out of 259".
TEST_COUNT = re.compile(r"\b\d[\d,]* (?:\w+ )?tests\b|\bout of \d[\d,]*\b")


def fenced_blocks(text):
    """(line number, content) of each fenced block; one without an end reaches to the end of the text."""
    blocks, begin, content = [], 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("```"):
            content.append(line)
            continue
        if begin:
            blocks.append((begin, "\n".join(content)))
        begin, content = 0 if begin else number, []
    return blocks + ([(begin, "\n".join(content))] if begin else [])


def place(page, line):
    return f"{page.relative_to(ROOT)}:{line}"


class Documents(unittest.TestCase):
    def test_no_fenced_block_is_empty(self):
        for page in DOCUMENTS:
            for line, content in fenced_blocks(page.read_text()):
                self.assertTrue(content.strip(), f"{place(page, line)}: this code block is empty")

    def test_no_test_count_is_typed_by_hand(self):
        for page in DOCUMENTS:
            for number, line in enumerate(page.read_text().splitlines(), 1):
                found = TEST_COUNT.search(line)
                self.assertIsNone(found, f"{place(page, number)}: '{found and found.group()}' will be wrong soon")

    def test_each_study_names_an_existing_recipe(self):
        self.assertTrue(STUDIES)
        for page in STUDIES:
            named = re.findall(r"recipes/[\w/]+\.toml", page.read_text())
            self.assertTrue(named, f"{page.name} names no recipe")
            for recipe in named:
                self.assertTrue((ROOT / recipe).is_file(), f"{page.name} names {recipe}, which does not exist")

    def test_each_study_is_in_the_index(self):
        index = (ROOT / "docs/results/README.md").read_text()
        for page in STUDIES:
            self.assertTrue(page.name in index, f"docs/results/README.md does not link to {page.name}")


if __name__ == "__main__":
    unittest.main()
