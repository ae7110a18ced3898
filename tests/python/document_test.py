"""Runs the code of docs/python.md, from top to bottom."""

import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"


class Document(unittest.TestCase):
    def test_the_code_runs(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 5)
        before, names, printed = os.getcwd(), {}, io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
            os.chdir(folder)
            try:
                for number, block in enumerate(blocks, 1):
                    exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
            finally:
                os.chdir(before)
        self.assertIn("did you mean 'window'?", printed.getvalue())
        self.assertIn("assisted", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
