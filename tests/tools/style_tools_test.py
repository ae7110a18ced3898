"""Tests of tools/check_format and tools/lint on small repositories, with a clang-format that prints its arguments."""

import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # tools/lint is loaded as a module

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


class CheckFormat(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.add_program("clang-format-14", 'for word in "$@"; do echo "$word"; done')
        (self.root / "tools").mkdir()
        shutil.copy(TOOLS / "check_format", self.root / "tools/check_format")

    def tearDown(self):
        self.folder.cleanup()

    def add_program(self, name, text):
        (self.root / ".bin").mkdir(exist_ok=True)
        (self.root / ".bin" / name).write_text("#!/bin/bash\n" + text + "\n")
        (self.root / ".bin" / name).chmod(0o755)

    def run_tool(self, *arguments):
        path = f"{self.root}/.bin:/usr/bin:/bin"
        result = subprocess.run([self.root / "tools/check_format", *arguments], env={"PATH": path}, capture_output=True,
                                text=True)
        return result.returncode, {line.removeprefix("./") for line in result.stdout.splitlines()}, result.stderr

    def test_checks_every_file_where_there_is_no_git(self):
        self.add_program("git", "exit 128")
        for name in ("base/a b.cpp", "base/a.h", "base/a.cu", "base/a.txt", "build/made.cpp", ".venv/other.h"):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text("")
        status, output, _ = self.run_tool()
        self.assertEqual((status, output), (0, {"--dry-run", "-Werror", "base/a b.cpp", "base/a.h", "base/a.cu"}))

    def test_nothing_to_check_is_an_error(self):
        for git in ("exit 128", "exit 0"):
            self.add_program("git", git)
            status, _, errors = self.run_tool()
            self.assertEqual(status, 1)
            self.assertIn("no .cpp or .h file", errors)

    def test_documents_have_lines_of_at_most_120_columns(self):
        fits, long = "é" * 120 + "\n", "one\n" + "x" * 121 + "\n"
        (self.root / "fits.md").write_text(fits)
        (self.root / "long.md").write_text(long)
        status, output, _ = self.run_tool("fits.md")
        self.assertEqual((status, output), (0, set()))
        for arguments in (["fits.md", "long.md"], ["--fix", "long.md"]):
            status, output, errors = self.run_tool(*arguments)
            self.assertEqual((status, output), (1, {"long.md:2:" + "x" * 121}))
            self.assertIn("120 columns", errors)
        self.assertEqual((self.root / "long.md").read_text(), long)

    def test_rows_of_tables_that_the_program_writes_may_be_longer(self):
        (self.root / "docs/results").mkdir(parents=True)
        row = "|" + "x" * 121 + "\n"
        for name in ("docs/results/study.md", "docs/results/README.md", "table.md"):
            (self.root / name).write_text(row)
        self.assertEqual(self.run_tool("docs/results/study.md")[0], 0)
        for name in ("docs/results/README.md", "table.md"):
            self.assertEqual(self.run_tool(name)[0], 1)
        (self.root / "docs/results/study.md").write_text("x" * 121 + "\n")
        self.assertEqual(self.run_tool("docs/results/study.md")[0], 1)

    def test_code_and_documents_are_both_checked(self):
        self.add_program("clang-format-14", "exit 1")
        (self.root / "long.md").write_text("x" * 121 + "\n")
        status, output, _ = self.run_tool("a.cpp", "long.md")
        self.assertEqual(status, 1)
        self.assertEqual(len(output), 1)


class Lint(unittest.TestCase):
    def test_commands_are_those_of_sources_without_what_only_gcc_knows(self):
        loader = importlib.machinery.SourceFileLoader("lint", str(TOOLS / "lint"))
        lint = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", loader))
        loader.exec_module(lint)
        with tempfile.TemporaryDirectory(suffix=" a b") as folder:
            lint.ROOT = pathlib.Path(folder)
            build = lint.ROOT / "build/lint"
            build.mkdir(parents=True)
            command = f'g++ -DX=1 -Winvalid-pch -Wno-restrict -include "{build}/cmake_pch.hxx" -c "{folder}/base/a.cpp"'
            entries = [{"directory": str(build), "file": f"{folder}/{name}", "command": command}
                       for name in ("base/a.cpp", "cmake/precompiled.cpp")]
            (build / "compile_commands.json").write_text(json.dumps(entries))
            self.assertEqual(lint.clang_commands(build), ["base/a.cpp"])
            written = json.loads((build / "compile_commands.json").read_text())
        self.assertEqual([entry["arguments"] for entry in written],
                         [["g++", "-DX=1", "-include", f"{build}/cmake_pch.hxx", "-c", f"{folder}/base/a.cpp"]])


if __name__ == "__main__":
    unittest.main()
