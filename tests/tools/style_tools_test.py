"""Tests of tools/check_includes and tools/check_format on small invented repositories."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


class Repository(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


SOUND = {"base/error.h": "#pragma once\n#include <string>\n",
         "base/toml.h": "#pragma once\n#include <toml++/toml.h>\n",
         "base/device.h": "#pragma once\n#include <c10/core/Device.h>\n",
         "base/kernels/sums.cuh": "#pragma once\n",
         "model/kernels/norm.cu": '#include "base/kernels/sums.cuh"\n',
         "model/model.h": '#pragma once\n#include "base/error.h"\n#include <ATen/ATen.h>\n',
         "model/long.cpp": "\n" * 500,
         "train/trainer.h": '#pragma once\n#include "model/model.h"\n',
         "tests/helpers.h": "#pragma once\n",
         "tests/train/a_test.cpp": '#include "train/trainer.h"\n#include "base/toml.h"\n',
         # Modules may share what a third one declares.
         "model/a.h": '#pragma once\n#include "model/shared.h"\n',
         "model/b.cpp": '#include "model/a.h"\n#include "model/shared.h"\n',
         "model/shared.h": "#pragma once\n"}

# Files with one violation, and words of its message.
VIOLATIONS = {
    "against the direction": ({"model/bad.cpp": '#include "model/model.h"\n#include "train/trainer.h"\n'},
                              "model/bad.cpp:2:", "train/trainer.h"),
    "data and model": ({"data/corpus/corpus.h": '#include "model/model.h"\n'}, "data/corpus/corpus.h:1:"),
    "tests": ({"train/bad.cpp": '#include "tests/helpers.h"\n'}, "train/bad.cpp:1:", "tests/helpers.h"),
    "toml through a header": ({"base/options.h": '#include "base/toml.h"\n',
                               "model/bad.cpp": '#include "base/options.h"\n'},
                              "model/bad.cpp:1:", "base/options.h -> base/toml.h -> <toml++/toml.h>"),
    "torch in data": ({"data/direct.cpp": "#include <torch/types.h>\n"}, "data/direct.cpp:1:", "torch/types.h"),
    "torch through a header": ({"data/direct.cpp": '#include "base/device.h"\n'},
                               "data/direct.cpp:1:", "base/device.h -> <c10/core/Device.h>"),
    "torch in base": ({"base/files.h": "#include <ATen/ATen.h>\n"}, "base/files.h:1:", "ATen/ATen.h"),
    "all of torch": ({"train/bad.cpp": "#include <torch/torch.h>\n"}, "train/bad.cpp:1:", "torch/torch.h"),
    "circle": ({"data/a.h": "#pragma once\n", "data/a.cpp": '#include "data/a.h"\n#include "data/b.h"\n',
                "data/b.h": '#pragma once\n#include "data/a.h"\n'}, "circle", "data/a <- data/b"),
    "circle of three": ({f"data/{one}{end}": text for one, other in ("ab", "bc", "ca") for end, text in
                         ((".h", "#pragma once\n"), (".cpp", f'#include "data/{other}.h"\n'))},
                        "circle", "data/a", "data/b", "data/c"),
    "not from the root": ({"model/bad.cpp": '#include "model.h"\n'}, "model/bad.cpp:1:", "model.h"),
    "kernels": ({"base/kernels/bad.cu": '#include "model/kernels/norm.cu"\n'}, "base/kernels/bad.cu:1:"),
    "a long file": ({"model/long.cpp": "\n" * 501}, "model/long.cpp:501:", "501 lines"),
}


class CheckIncludes(Repository):
    def test_each_violation_is_the_only_one_of_its_repository(self):
        self.write(SOUND)
        run = lambda: subprocess.run([TOOLS / "check_includes", self.root], capture_output=True, text=True)
        self.assertEqual((run().returncode, run().stdout), (0, ""))
        for name, (files, *parts) in VIOLATIONS.items():
            with self.subTest(name):
                self.write(files)
                result = run()
                self.assertEqual((result.returncode, len(result.stdout.splitlines())), (1, 1), result.stdout)
                for part in parts:
                    self.assertIn(part, result.stdout)
            for file in files:
                (self.root / file).unlink()
            self.write({file: SOUND[file] for file in files if file in SOUND})


class CheckFormat(Repository):
    """With a clang-format that prints its arguments."""

    def setUp(self):
        super().setUp()
        self.add_program("clang-format-14", 'for word in "$@"; do echo "$word"; done')
        self.write({"tools/check_format": ""})
        shutil.copy(TOOLS / "check_format", self.root / "tools/check_format")

    def add_program(self, name, text):
        self.write({f".bin/{name}": "#!/bin/bash\n" + text + "\n"})
        (self.root / ".bin" / name).chmod(0o755)

    def run_tool(self, *arguments):
        result = subprocess.run([self.root / "tools/check_format", *arguments], capture_output=True, text=True,
                                env={"PATH": f"{self.root}/.bin:/usr/bin:/bin"})
        return result.returncode, {line.removeprefix("./") for line in result.stdout.splitlines()}, result.stderr

    def test_checks_every_file_where_there_is_no_git(self):
        self.add_program("git", "exit 128")
        self.assertIn("no .cpp or .h file", self.run_tool()[2])
        self.write({name: "" for name in
                    ("base/a b.cpp", "base/a.h", "base/a.cu", "base/a.txt", "build/made.cpp", ".venv/other.h")})
        status, output, _ = self.run_tool()
        self.assertEqual((status, output), (0, {"--dry-run", "-Werror", "base/a b.cpp", "base/a.h", "base/a.cu"}))

    def test_documents_have_lines_of_at_most_120_columns(self):
        fits, long, row = "é" * 120 + "\n", "one\n" + "x" * 121 + "\n", "|" + "x" * 121 + "\n"
        self.write({"fits.md": fits, "long.md": long, "docs/results/study.md": row})
        self.assertEqual(self.run_tool("fits.md")[:2], (0, set()))
        for arguments in (["fits.md", "long.md"], ["--fix", "long.md"]):
            status, output, errors = self.run_tool(*arguments)
            self.assertEqual((status, output), (1, {"long.md:2:" + "x" * 121}))
            self.assertIn("120 columns", errors)
        self.assertEqual((self.root / "long.md").read_text(), long)
        # Rows of tables and commands that programs write may be longer.
        self.assertEqual(self.run_tool("docs/results/study.md")[0], 0)
        for begin, status in (("draftsmith ", 0), ("drafters ", 1), ("* ", 1)):
            self.write({"docs/results/study.md": begin + 121 * "x" + "\n"})
            self.assertEqual(self.run_tool("docs/results/study.md")[0], status, begin)
        self.add_program("clang-format-14", "exit 1")
        status, output, _ = self.run_tool("a.cpp", "long.md")
        self.assertEqual((status, len(output)), (1, 1))


if __name__ == "__main__":
    unittest.main()
