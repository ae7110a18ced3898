"""Tests of tools/container with a made-up engine, of tools/platforms' usage, and of tools/cpu_libtorch with a made-up
environment."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# `train` leaves the source lines that tools/container reads, and `generate` prints what it is given.
ENGINE = """#!/bin/bash
echo "$*" >>"$CALLS"
case "$*" in
  info*) [ "$STATE" != stopped ] ;;
  build*) [ "$STATE" != unbuildable ] ;;
  image*) echo 643000000 ;;
  *entrypoint*) echo draftsmith ;;
esac
[ $? = 0 ] || exit 1
for word in "$@"; do
  case $word in *:/work) mkdir -p "${word%:/work}/tiny/language"; seq 5 >"${word%:/work}/tiny/language/test.src" ;; esac
done
case " $* " in *" generate "*) cat ;; esac
"""


def copy_tools(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


class Container(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        copy_tools(self.root, "tools/container", "tools/platforms_parts/roots.sh", "Dockerfile", ".dockerignore")
        (self.root / "bin").mkdir()
        for name in ("docker", "podman"):
            self.add_engine(name, "#!/bin/bash\nexit 1\n")

    def tearDown(self):
        self.folder.cleanup()

    def add_engine(self, name, text):
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def run_tool(self, *arguments, state="well"):
        calls = self.root / "calls"
        environment = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "CALLS": str(calls), "STATE": state}
        result = subprocess.run([self.root / "tools/container", *arguments], env=environment, capture_output=True,
                                text=True)
        return result, calls.read_text() if calls.exists() else ""

    def test_the_engine_that_works_builds_and_runs_the_image(self):
        self.add_engine("podman", ENGINE)
        result, calls = self.run_tool("--tag", "mine")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("build --tag mine --build-arg DRAFTSMITH_COMMIT=unknown .\n", calls)
        self.assertRegex(calls, r"run --rm --interactive --volume \S+:/work mine train \S+tiny.toml")
        self.assertIn("as draftsmith", result.stdout)
        self.assertIn("\n1\n2\n3\n", result.stdout)  # generate was given three lines
        self.assertIn("643 MB", result.stdout)

    def test_without_a_working_engine_the_other_way_is_named(self):
        self.add_engine("docker", ENGINE)
        result, _ = self.run_tool(state="stopped")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--chroot DIR", result.stderr)
        self.assertEqual(result.stderr.count("error:"), 1)

    def test_a_build_that_fails_is_a_failure(self):
        self.add_engine("docker", ENGINE)
        self.assertEqual(self.run_tool(state="unbuildable")[0].returncode, 1)

    def test_unknown_or_half_options_show_the_usage(self):
        for arguments in (["--chroot"], ["--engine", "docker"]):
            result, _ = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn("tools/container --chroot DIR", result.stderr)


class Dockerfile(unittest.TestCase):
    def test_has_only_lines_that_the_container_tool_reads(self):
        lines = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text()).splitlines()
        words = {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}
        known = re.findall(r"^      ([A-Z]+)\) ", (ROOT / "tools/container").read_text(), re.MULTILINE)
        self.assertLessEqual(words, set(known))

    def test_ignored_files_need_no_pattern_that_tar_reads_otherwise(self):
        for line in (ROOT / ".dockerignore").read_text().splitlines():
            self.assertTrue(line.startswith("#") or re.fullmatch(r"[\w.-]+", line), line)


class Platforms(unittest.TestCase):
    def test_no_or_unknown_platforms_show_the_usage(self):
        for arguments in ([], ["solaris"], ["trixie", "--roots"]):
            result = subprocess.run([ROOT / "tools/platforms", *arguments], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("tools/platforms PLATFORM...", result.stderr)
            self.assertNotIn("set -euo", result.stderr)


class CpuLibtorch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        copy_tools(self.root, "tools/cpu_libtorch", "tools/requirements.txt")
        self.site = self.root / "site"
        self.add_library("nvidia/cu13/lib/libcudart.so.13")
        self.add_library("nvidia/cu13/lib/libcublas.so.13")
        self.add_library("torch/lib/libc10.so", "nvidia/cu13/lib/libcudart.so.13")
        self.add_library("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so")
        header = self.site / "torch/include/torch/csrc/api.h"
        header.parent.mkdir(parents=True)
        header.write_text("")

    def tearDown(self):
        self.folder.cleanup()

    def add_library(self, name, *needed):
        """A library whose name within is that of its file, linked to others."""
        file = self.site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-x", "c", os.devnull, "-x", "none", f"-Wl,-soname,{file.name}", "-o", file,
                        "-Wl,--no-as-needed", *(self.site / other for other in needed)], check=True)

    def run_tool(self, *arguments):
        return subprocess.run([self.root / "tools/cpu_libtorch", self.root / "made", *arguments], capture_output=True,
                              text=True)

    def test_takes_headers_and_what_the_cpu_library_needs(self):
        result = self.run_tool("--installed", self.site)
        self.assertEqual(result.returncode, 0, result.stderr)
        made = {str(file.relative_to(self.root / "made")) for file in (self.root / "made").rglob("*") if file.is_file()}
        self.assertEqual(made, {"include/torch/csrc/api.h", "lib/libtorch_cpu.so", "lib/libc10.so", "lib/libcudart.so.13"})

    def test_a_library_that_is_nowhere_is_named(self):
        (self.site / "nvidia/cu13/lib/libcudart.so.13").unlink()
        result = self.run_tool("--installed", self.site)
        self.assertEqual(result.returncode, 2)
        self.assertIn("no wheel has libcudart.so.13", result.stderr)

    def test_a_folder_without_torch_or_one_that_is_full_is_refused(self):
        self.assertIn("has no torch", self.run_tool("--installed", self.root).stderr)
        (self.root / "made/file").write_text("")
        result = self.run_tool("--installed", self.site)
        self.assertEqual(result.returncode, 2)
        self.assertIn("not empty", result.stderr)


if __name__ == "__main__":
    unittest.main()
