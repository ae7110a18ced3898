"""Tests of the C++ package: what `cmake --install` puts in place, and a program outside of the tree that uses it.

    cpp_package_test.py BUILD PROGRAM
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/cpp"
TINY = ROOT / "python/draftsmith/recipes/tiny.toml"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def run(*command, status=0, **options):
    """The finished process; an AssertionError with its output if it ended with another status."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert result.returncode == status, f"{command}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


class CppPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.prefix = cls.root / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.cmake = next(cls.prefix.glob("lib*/**/DraftsmithConfig.cmake")).parent

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def configure(self, source, build, *arguments, **options):
        return run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *arguments,
                   **options)

    def project(self, name, lines):
        """A project that has nothing but these lines."""
        folder = self.root / name
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\n" + lines)
        return folder

    def test_a_program_outside_of_the_tree_decodes_with_a_tandem(self):
        source, build, work = self.root / "example", self.root / "example-build", self.root / "work"
        shutil.copytree(EXAMPLE, source)
        self.configure(source, build, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-O0")
        run("cmake", "--build", build)
        run(PROGRAM, "train", TINY, "--work", work, "--until", "tandem", "--quiet")
        text = "".join((work / "language/test.src").read_text().splitlines(keepends=True)[:4])
        decoded = run(build / "tandem_example", work / "target/model", work / "tandem/model", input=text)
        greedy = run(self.prefix / "bin/draftsmith", "generate", "--model", work / "target/model", input=text)
        self.assertEqual(decoded.stdout, greedy.stdout)
        self.assertEqual(len(decoded.stderr.splitlines()), 4)
        wrong = run(build / "tandem_example", work / "target/model", work / "drafter/model", input=text, status=1)
        self.assertIn("Tandem", wrong.stderr)
        self.link_by_pkg_config(build)

    def link_by_pkg_config(self, build):
        """Links the example's object as a Makefile would."""
        found = {**os.environ, "PKG_CONFIG_PATH": str(self.cmake.parents[1] / "pkgconfig")}
        flags = run("pkg-config", "--libs", "draftsmith", env=found).stdout.split()
        run("c++", next(build.glob("**/main.cpp.o")), *flags, "-o", build / "linked")
        self.assertIn("usage", run(build / "linked", status=2).stderr)
        includes = run("pkg-config", "--cflags-only-I", "draftsmith", env=found).stdout
        folders = [pathlib.Path(word.removeprefix("-I")).resolve() for word in includes.split()]
        self.assertIn((self.prefix / "include/draftsmith").resolve(), folders)

    def test_installs_the_headers_that_entrances_include_and_no_others(self):
        folder = self.prefix / "include/draftsmith"
        waiting = ["infer/session.h", "infer/loop/vocabulary.h", "train/trainer.h"]
        reached = set()
        while waiting:
            header = waiting.pop()
            if header not in reached:
                reached.add(header)
                waiting += INCLUDE.findall((folder / header).read_text())
        self.assertEqual(reached, {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()})

    def test_an_unknown_component_is_named(self):
        source = self.project("component", "find_package(Draftsmith REQUIRED COMPONENTS serve)\n")
        errors = self.configure(source, self.root / "component-build", status=1).stderr
        self.assertIn("no component 'serve'", errors)

    def test_another_version_is_not_taken(self):
        source = self.project("version", "find_package(Draftsmith 0.2 REQUIRED)\n")
        self.assertIn('requested version "0.2"', self.configure(source, self.root / "version-build", status=1).stderr)

    def test_another_libtorch_is_named_with_both_versions(self):
        include = self.root / "other/include/torch"
        for file, text in {"csrc/api/include/torch/torch.h": "",
                           "headeronly/version.h": '#define TORCH_VERSION \\\n  "1.13.1"\n'}.items():
            (include / file).parent.mkdir(parents=True)
            (include / file).write_text(text)
        (self.root / "other/lib").mkdir()
        (self.root / "other/lib/libgomp.so.1").touch()
        source = self.project("torch", "find_package(Draftsmith QUIET)\nmessage(${Draftsmith_NOT_FOUND_MESSAGE})\n")
        errors = self.configure(source, self.root / "torch-build", f"-DLIBTORCH={self.root}/other").stderr
        self.assertIn("found:    LibTorch 1.13.1", errors)
        self.assertRegex(errors, r"hint: +pip install torch==\d")


if __name__ == "__main__":
    BUILD, PROGRAM = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
