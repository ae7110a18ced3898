"""Tests of tools/convert_dataset.py. Without pyarrow (tools/setup --with-peers) only its errors are tested."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = pathlib.Path(os.environ.get("DRAFTSMITH_PEERS_PYTHON", ROOT / ".venv-peers/bin/python"))
PYTHON = PEERS if PEERS.exists() else pathlib.Path(sys.executable)
HAS_ARROW = subprocess.run([PYTHON, "-c", "import pyarrow"], capture_output=True).returncode == 0

# Writes the data of the tests: two files of a split, one of another, and a stream of Arrow as `datasets` saves it.
WRITER = """
import datetime, pathlib, pyarrow as pa, pyarrow.parquet as pq, sys
folder = pathlib.Path(sys.argv[1])
(folder / "hub").mkdir()
def table(first): return pa.table({"turns": [["a", "b"], [first]], "category": ["qa", "rag"], "n": [1, 2],
                                   "day": [datetime.date(2026, 1, 2)] * 2})
pq.write_table(table("x"), folder / "hub/test-00000-of-00002.parquet")
pq.write_table(table("y"), folder / "hub/test-00001-of-00002.parquet")
pq.write_table(table("z"), folder / "hub/train-00000-of-00001.parquet")
pairs = pa.table({"translation": [{"de": "eins\\nzwei", "en": "one two"}, {"de": "drei", "en": "three"}]})
(folder / "disk/train").mkdir(parents=True)
with pa.OSFile(str(folder / "disk/train/data-00000-of-00001.arrow"), "wb") as file:
    with pa.ipc.new_stream(file, pairs.schema) as writer: writer.write_table(pairs)
"""


class ConvertDataset(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, *arguments, python=PYTHON):
        return subprocess.run([python, ROOT / "tools/convert_dataset.py", *map(str, arguments)], capture_output=True, text=True)

    def make_data(self):
        if not HAS_ARROW:
            self.skipTest(f"no pyarrow in {PYTHON}: tools/setup --with-peers installs it")
        subprocess.run([PYTHON, "-c", WRITER, self.folder], check=True)

    def test_a_split_of_parquet_files_becomes_jsonl(self):
        self.make_data()
        out = self.folder / "data/bench/test.jsonl"
        result = self.run_tool(f"{self.folder}/hub:test", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([row["turns"] for row in rows], [["a", "b"], ["x"], ["a", "b"], ["y"]])
        self.assertEqual(rows[0]["day"], "2026-01-02")
        self.run_tool(f"{self.folder}/hub:train", "--out", out, "--columns", "category", "--limit", "1")
        self.assertEqual(out.read_text(), '{"category": "qa"}\n')

    def test_saved_datasets_become_parallel_text(self):
        self.make_data()
        result = self.run_tool(self.folder / "disk", "--parallel", "de,en", "--out", self.folder / "mine/train")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.folder / "mine/train.de").read_text(), "eins zwei\ndrei\n")
        self.assertEqual((self.folder / "mine/train.en").read_text(), "one two\nthree\n")

    def test_what_is_wrong_is_said(self):
        self.make_data()
        (self.folder / "broken.parquet").write_text("no table")
        out = self.folder / "out.jsonl"
        for arguments, message in (
            ((self.folder / "hub", "--out", out), "several splits"),
            ((f"{self.folder}/hub:dev", "--out", out), "no data in"),
            ((f"{self.folder}/hub:test", "--out", out, "--columns", "odd"), "has no column odd"),
            ((self.folder / "broken.parquet", "--out", out), "cannot be read"),
            ((f"{self.folder}/hub:test", "--out", self.folder / "out"), "the kind of output is unknown"),
            ((f"{self.folder}/hub:test", "--parallel", "de,en", "--out", self.folder / "out"), "no text in de"),
        ):
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(message, result.stderr)
            self.assertFalse(out.exists())

    def test_missing_input_and_missing_pyarrow(self):
        result = self.run_tool(self.folder / "nowhere", "--out", self.folder / "out.jsonl")
        self.assertEqual(result.returncode, 2)
        self.assertIn("is not there" if HAS_ARROW else "pyarrow is not installed", result.stderr)


if __name__ == "__main__":
    unittest.main()
