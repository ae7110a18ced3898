"""The documents keep their promises: links, anchors and paths exist, no code block is empty, studies name recipes."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
             *sorted((ROOT / "docs").rglob("*.md"))]
# Pages of docs/results/ that are not studies.
OTHERS = {"README.md", "claims.md", "cpu.md", "gpu.md", "machine.md", "serving.md", "training.md"}
STUDIES = [page for page in sorted((ROOT / "docs/results").glob("*.md")) if page.name not in OTHERS]
# "257 tests", "1,279 tests", "all 40 unit tests", "3 out of 259".
TEST_COUNT = re.compile(r"\b\d[\d,]* (?:\w+ )?tests\b|\bout of \d[\d,]*\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# A file of the repository, in a comment or in a document. Pages of results name files of their own commits.
PATH = re.compile(r"(?<![\w./$-])(?:base|bench|cli|cmake|data|distributed|docs|evaluate|examples|infer|metrics|model|python"
                  r"|recipes|tests|tools|train)/[\w./-]*\w\.(?:h|cpp|cu|cuh|cmake|js|md|py|toml|txt)\b")


def anchors_of(page):
    """The anchors that GitHub gives the headings of a page."""
    slugs = []
    for heading in HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return slugs


def comments_and_documents():
    """(file, its text, where only comments count of C++ files) of every file that git knows, but for results' pages."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.md", "*.h", "*.cpp", "*.cu", "*.cuh"],
                            capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        file = ROOT / name
        if name.startswith("docs/results/") or not file.is_file():
            continue
        text = file.read_text()
        if file.suffix != ".md":
            text = "\n".join(line.partition("//")[2] for line in text.splitlines())
        yield file, text


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


class References(unittest.TestCase):
    def test_links_lead_to_files_and_headings(self):
        wrong = []
        for page in DOCUMENTS:
            for number, line in enumerate(page.read_text().splitlines(), 1):
                for target in LINK.findall(line):
                    name, _, anchor = target.partition("#")
                    file = (page.parent / name).resolve() if name else page
                    if "://" in target or target.startswith("mailto:"):
                        continue
                    if not file.exists() or (anchor and anchor not in anchors_of(file)):
                        wrong.append(f"{place(page, number)}: {target}")
        self.assertEqual(wrong, [])

    def test_paths_in_comments_and_documents_exist(self):
        wrong = [f"{file.relative_to(ROOT)}:{number}: {path}" for file, text in comments_and_documents()
                 for number, line in enumerate(text.splitlines(), 1) for path in PATH.findall(line)
                 if "NAME" not in path and not (ROOT / path).exists()]
        self.assertEqual(wrong, [])

    def test_cited_sections_of_the_methods_exist(self):
        known = re.findall(r"^## (\d+)\.", (ROOT / "docs/methods.md").read_text(), flags=re.MULTILINE)
        for file, text in comments_and_documents():
            for section in re.findall(r"methods\.md(?:\s|//)*§(\d+)", text):
                self.assertIn(section, known, f"{file.relative_to(ROOT)} cites a section that docs/methods.md lacks")


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

    def test_each_study_names_a_recipe(self):
        self.assertTrue(STUDIES)
        for page in STUDIES:  # of its commit
            self.assertRegex(page.read_text(), r"recipes/[\w/]+\.toml", f"{page.name} names no recipe")

    def test_tables_of_studies_are_those_of_the_pages(self):
        checked = subprocess.run([ROOT / "tools/results_table", "--check"], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
