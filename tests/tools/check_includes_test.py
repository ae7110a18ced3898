"""Tests of tools/check_includes on small invented repositories, each with one deliberate violation."""

import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/check_includes"


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("base/error.h", "#pragma once\n#include <string>\n")
        self.write("base/toml.h", "#pragma once\n#include <toml++/toml.h>\n")
        self.write("base/device.h", "#pragma once\n#include <c10/core/Device.h>\n")
        self.write("model/model.h", '#pragma once\n#include "base/error.h"\n#include <ATen/ATen.h>\n')
        self.write("train/trainer.h", '#pragma once\n#include "model/model.h"\n')

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self):
        result = subprocess.run([TOOL, self.root], capture_output=True, text=True)
        return result.returncode, result.stdout

    def assert_only_violation(self, *parts):
        status, output = self.run_tool()
        self.assertEqual(status, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        for part in parts:
            self.assertIn(part, output)

    def test_accepts_the_right_direction(self):
        self.assertEqual(self.run_tool(), (0, ""))

    def test_refuses_an_include_against_the_direction(self):
        self.write("model/bad.cpp", '#include "model/model.h"\n#include "train/trainer.h"\n')
        self.assert_only_violation("model/bad.cpp:2:", "train/trainer.h")

    def test_refuses_data_and_model_including_each_other(self):
        self.write("data/corpus/corpus.h", '#include "model/model.h"\n')
        self.assert_only_violation("data/corpus/corpus.h:1:", "model/model.h")

    def test_refuses_library_code_that_includes_tests(self):
        self.write("tests/helpers.h", "#pragma once\n")
        self.write("train/bad.cpp", '#include "tests/helpers.h"\n')
        self.assert_only_violation("train/bad.cpp:1:", "tests/helpers.h")

    def test_lets_tests_include_every_folder(self):
        self.write("tests/train/a_test.cpp", '#include "train/trainer.h"\n#include "base/toml.h"\n')
        self.assertEqual(self.run_tool(), (0, ""))

    def test_refuses_toml_in_model_even_through_another_header(self):
        self.write("base/options.h", '#include "base/toml.h"\n')
        self.write("model/bad.cpp", '#include "base/options.h"\n')
        self.assert_only_violation("model/bad.cpp:1:", "base/options.h -> base/toml.h -> <toml++/toml.h>")

    def test_refuses_torch_in_data_even_through_another_header(self):
        self.write("data/direct.cpp", "#include <torch/types.h>\n")
        self.assert_only_violation("data/direct.cpp:1:", "torch/types.h")
        self.write("data/direct.cpp", '#include "base/device.h"\n')
        self.assert_only_violation("data/direct.cpp:1:", "base/device.h -> <c10/core/Device.h>")

    def test_refuses_torch_in_headers_of_base(self):
        self.write("base/files.h", "#include <ATen/ATen.h>\n")
        self.assert_only_violation("base/files.h:1:", "ATen/ATen.h")

    def test_refuses_the_header_that_includes_all_of_torch(self):
        self.write("train/bad.cpp", "#include <torch/torch.h>\n")
        self.assert_only_violation("train/bad.cpp:1:", "torch/torch.h")

    def test_refuses_a_circle_of_modules_that_no_header_closes_alone(self):
        self.write("model/a.h", "#pragma once\n")
        self.write("model/a.cpp", '#include "model/a.h"\n#include "model/b.h"\n')
        self.write("model/b.h", '#pragma once\n#include "model/a.h"\n')
        self.assert_only_violation("model/b.h:2:", "circle", "model/a -> model/b -> model/a")

    def test_a_circle_of_three_modules_is_one_violation(self):
        for one, other in ("ab", "bc", "ca"):
            self.write(f"data/{one}.h", "#pragma once\n")
            self.write(f"data/{one}.cpp", f'#include "data/{other}.h"\n')
        self.assert_only_violation("data/c.cpp:1:", "data/a -> data/b -> data/c -> data/a")

    def test_modules_may_share_what_a_third_one_declares(self):
        self.write("model/a.h", '#pragma once\n#include "model/shared.h"\n')
        self.write("model/b.cpp", '#include "model/a.h"\n#include "model/shared.h"\n')
        self.write("model/shared.h", "#pragma once\n")
        self.assertEqual(self.run_tool(), (0, ""))

    def test_refuses_quoted_includes_that_do_not_start_at_the_root(self):
        self.write("model/bad.cpp", '#include "model.h"\n')
        self.assert_only_violation("model/bad.cpp:1:", "model.h")

    def test_kernels_follow_the_same_order(self):
        self.write("base/kernels/sums.cuh", "#pragma once\n")
        self.write("model/kernels/norm.cu", '#include "base/kernels/sums.cuh"\n')
        self.assertEqual(self.run_tool(), (0, ""))
        self.write("base/kernels/bad.cu", '#include "model/kernels/norm.cu"\n')
        self.assert_only_violation("base/kernels/bad.cu:1:", "model/kernels/norm.cu")

    def test_refuses_files_of_more_than_500_lines(self):
        self.write("model/long.cpp", "\n" * 500)
        self.assertEqual(self.run_tool(), (0, ""))
        self.write("model/long.cpp", "\n" * 501)
        self.assert_only_violation("model/long.cpp:501:", "501 lines")


if __name__ == "__main__":
    unittest.main()
