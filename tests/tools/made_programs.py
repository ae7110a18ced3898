"""A folder of made-up programs, for tests of scripts."""

import pathlib
import tempfile
import unittest


class MadePrograms(unittest.TestCase):
    """Gives each test an empty folder `root`, and `calls`, the file in which programs note their arguments."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.calls = self.root / "calls"

    def tearDown(self):
        self.folder.cleanup()

    def add_program(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)
