"""Tests of the packages.

    packages_test.py BUILD PROGRAM   what `cmake --install` puts in place, and a program outside of the tree that uses it
    packages_test.py --wheel WHEEL   the wheel, and a package made of the sdist, in bare environments (tools/wheel --test)
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
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
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.prefix = cls.root / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.cmake = next(cls.prefix.glob("lib*/**/DraftsmithConfig.cmake")).parent

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
        waiting = ["infer/session.h", "infer/loop/processors.h", "train/trainer.h"]
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


USE = """
import sys
import draftsmith
assert draftsmith.__file__.startswith(sys.prefix), draftsmith.__file__
print(draftsmith.__version__, draftsmith.score("bleu", ["a small cat sat there"], ["a small cat sat there"])["bleu"])
"""
# Shared libraries that a wheel may take from the machine.
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|z)\.so")


class BareEnvironment(unittest.TestCase):
    """A virtual environment that sees the packages of .venv by links, in place of gigabytes of its own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.torch = next((ROOT / ".venv").resolve().glob("lib/python3*/site-packages"))
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "LIBTORCH")}
        self.environment.update(PYTHONNOUSERSITE="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        run(sys.executable, "-m", "venv", self.folder / "venv")
        self.site = next(self.folder.glob("venv/lib/python3*/site-packages"))
        for there in self.torch.iterdir():
            if not there.name.startswith(("__pycache__", "draftsmith")) and not (self.site / there.name).exists():
                (self.site / there.name).symlink_to(there)
        self.before = self.installed()

    def installed(self):
        return sorted(path.name for path in self.site.iterdir() if path.name != "__pycache__")

    def run_here(self, program, *arguments, **options):
        """Runs a program of the environment in the folder, where nothing leads to the repository."""
        return run(self.folder / "venv/bin" / program, *arguments, cwd=self.folder, env=self.environment, **options).stdout

    def remove_package(self):
        self.run_here("pip", "--quiet", "uninstall", "--yes", "draftsmith")
        self.assertEqual(self.installed(), self.before)
        self.assertFalse((self.folder / "venv/bin/draftsmith").exists())


class WheelPackage(BareEnvironment):
    def test_the_wheel_needs_torch_alone(self):
        self.run_here("pip", "--quiet", "install", "--no-index", WHEEL)
        for file in (self.site / "draftsmith/bin/draftsmith", *self.site.glob("draftsmith/*.so")):
            listing = run("ldd", file, env=self.environment).stdout
            self.assertNotIn("not found", listing)
            for name, path in re.findall(r"(\S+) => (\S+)", listing):
                inside = path.startswith((str(self.site), str(self.torch.parents[2])))
                self.assertTrue(inside or SYSTEM.match(name), f"{file.name} uses {path}")
        recipe = self.run_here("python", "-c", "import draftsmith; print(draftsmith.recipe('tiny'))").strip()
        self.run_here("draftsmith", "train", recipe, "--work", "work", "--device", "cpu", "--quiet")
        lines = (self.folder / "work/language/test.src").read_text().splitlines()[:3]
        put_out = self.run_here("python", "-m", "draftsmith", "generate", "--model", "work/target/model", "--drafter",
                                "work/drafter/model", "--method", "assisted", "--device", "cpu",
                                input="".join(line + "\n" for line in lines))
        self.assertEqual(len(put_out.splitlines()), 3)
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL)
        self.run_here("python", "-c", USE + "\n".join(blocks))
        self.remove_package()

    def test_pip_makes_a_package_of_the_sdist(self):
        """In an environment of pip's own, with the tools that pip fetches for it."""
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", self.folder / "dist", cwd=ROOT)
        (sdist,) = (self.folder / "dist").iterdir()
        with tarfile.open(sdist) as tar:
            folders = {name.split("/")[1] for name in tar.getnames() if "/" in name}
        self.assertFalse(folders & {".git", ".venv", "tests"})
        self.environment["LIBTORCH"] = str(self.torch / "torch")
        self.run_here("pip", "--quiet", "install", sdist)
        del self.environment["LIBTORCH"]
        self.run_here("draftsmith", "--version")
        self.run_here("python", "-c", USE)
        self.remove_package()


if __name__ == "__main__":
    if sys.argv[1] == "--wheel":
        WHEEL, chosen = pathlib.Path(sys.argv[2]).resolve(), "WheelPackage"
    else:
        (BUILD, PROGRAM), chosen = sys.argv[1:3], "CppPackage"
    unittest.main(argv=[sys.argv[0], chosen])
