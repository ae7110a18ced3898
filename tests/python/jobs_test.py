"""Tests of draftsmith.train, evaluate and score, and of Ctrl-C in them."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import draftsmith
from fixtures import model, program, texts, trained

SUITE = """
name = "small"
model = "{work}/target/model"
max_new_tokens = 8
drafter = [{{ name = "drafter", model = "{work}/drafter/model" }}]
task = {{ name = "test", source = "{work}/language/test.src", references = ["{work}/language/test.tgt"], limit = 6 }}
run = [{{ method = "assisted", drafter = ["drafter"] }}]
"""


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name) / "work"

    def train(self, **options):
        return draftsmith.train(draftsmith.recipe("tiny"), self.work, quiet=True, device="cpu", **options)

    def test_finished_stages_are_skipped(self):
        first = self.train(until="corpus")
        self.assertEqual([(row["stage"], row["skipped"]) for row in first],
                         [("language", False), ("tokenizer", False), ("corpus", False)])
        self.assertTrue(all(row["skipped"] for row in self.train(until="corpus")))
        self.assertTrue(all((pathlib.Path(row["directory"]) / "DONE").is_file() for row in first))

    def test_all_errors_of_a_recipe_come_at_once(self):
        with self.assertRaises(draftsmith.UserError) as caught:
            self.train(set={"target.training.length": "many", "corpus.tokeniser": "x"})
        self.assertEqual(len(caught.exception.problems), 2, caught.exception)
        self.assertFalse(self.work.exists())

    def test_ctrl_c_saves_the_work_and_the_next_call_goes_on(self):
        code = ("import draftsmith, sys\n"
                "try:\n"
                "    draftsmith.train(draftsmith.recipe('tiny'), sys.argv[1], until='target', device='cpu', quiet=True,\n"
                "                     set={'target.training.length': '100000 steps'})\n"
                "except KeyboardInterrupt as stop:\n"
                "    print(type(stop).__name__, stop)\n"
                "    raise SystemExit(7)\n")
        for stopped in (1, 2):  # the second run goes on from where the first was stopped
            process = subprocess.Popen([sys.executable, "-c", code, self.work], stdout=subprocess.PIPE, text=True)
            self.wait_for_steps(stopped)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
            self.assertEqual(process.returncode, 7, output)
            self.assertTrue(output.startswith("Interrupted"), output)
            self.assertIn("goes on from there", output)
            self.assertFalse(list(self.work.glob("target-*/DONE")))
        steps = [json.loads(line)["step"] for line in self.metrics().read_text().splitlines()]
        self.assertEqual(steps, sorted(set(steps)))

    def metrics(self):
        return self.work / "target/metrics.jsonl"

    def wait_for_steps(self, lines):
        """Returns when the training has reported itself that often."""
        while not self.metrics().exists() or len(self.metrics().read_text().splitlines()) < lines:
            threading.Event().wait(0.01)

    def test_one_job_at_a_time(self):
        errors = []

        def second():
            while not self.metrics().exists():
                threading.Event().wait(0.01)
            try:
                draftsmith.train(draftsmith.recipe("tiny"), self.work.parent / "second", quiet=True)
            except draftsmith.BusyError as error:
                errors.append(error)
            os.kill(os.getpid(), signal.SIGINT)

        other = threading.Thread(target=second)
        other.start()
        with self.assertRaises(draftsmith.Interrupted) as caught:
            self.train(until="target", set={"target.training.length": "100000 steps"})
        other.join()
        self.assertNotIsInstance(caught.exception, Exception)
        self.assertIn("one at a time", str(errors[0]))
        self.assertFalse((self.work.parent / "second").exists())


class Evaluate(unittest.TestCase):
    def test_gives_the_files_of_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            suite, out = pathlib.Path(folder) / "suite.toml", pathlib.Path(folder) / "out"
            suite.write_text(SUITE.format(work=trained()))
            found = draftsmith.evaluate(suite, out, device="cpu", quiet=True, set={"task.test.limit": 5})
            self.assertEqual(found.results["tasks"][0]["lines"], 5)
            self.assertIn("assisted", found.table)
            self.assertEqual(found.directory, out)
            results = json.loads((out / "results.json").read_text())
            self.assertEqual(found.results["tasks"], results["tasks"])
            rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
            self.assertEqual([row["task"] for row in found.rows], [row["task"] for row in rows])
            self.assertEqual(list(found.rows[0]), list(rows[0]))


class Score(unittest.TestCase):
    def test_gives_what_the_program_prints(self):
        hypotheses, references = ["a small cat sat", "two dogs"], ["a small cat sits", "two dogs run"]
        with tempfile.TemporaryDirectory() as folder:
            for name, lines in (("hyp", hypotheses), ("ref", references)):
                (pathlib.Path(folder) / name).write_text("\n".join(lines) + "\n")
            for metric, flags, options in (("bleu", [], {}), ("chrf", ["--word-order", "2"], {"word_order": 2}),
                                           ("rouge", ["--stemmer"], {"stemmer": True})):
                printed = program("score", metric, "--hyp", "hyp", "--ref", "ref", "--json", "--paired", "ref", *flags,
                                  cwd=folder)
                found = draftsmith.score(metric, hypotheses, references, other=references, **options)
                self.assertEqual(found, json.loads(printed.stdout))
        found = draftsmith.score("bleu", hypotheses, [references], sources=np.array(hypotheses))
        self.assertEqual(found["lines"], 2)
        with self.assertRaisesRegex(draftsmith.RunError, "\ufffd"):  # of a program that writes Latin-1
            draftsmith.score("command", hypotheses, [references], command=r"printf '\351\n1\n'")

    def test_bad_input(self):
        for arguments, options, message in ((("blue", ["a"], ["a"]), {}, "did you mean bleu"),
                                            (("bleu", ["a"], ["a", "b"]), {}, "1 texts, as in hypotheses"),
                                            (("bleu", [], []), {}, "nothing to score"),
                                            (("bleu", "a text", ["a text"]), {}, "hypotheses are one text"),
                                            (("bleu", ["a"], []), {}, "references"),
                                            (("bleu", ["a"], ["a"]), {"stem": 1}, "unknown key 'stem'"),
                                            (("bleu", ["a"], ["a"]), {"resamples": 1}, "10 to 1000000")):
            with self.subTest(arguments=arguments), self.assertRaises(draftsmith.UserError) as caught:
                draftsmith.score(*arguments, **options)
            self.assertIn(message, str(caught.exception))


class CtrlC(unittest.TestCase):
    def test_ends_generate_and_the_model_goes_on(self):
        source, loaded = texts(), model()
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            loaded.generate(source * 100000)
        timer.join()
        self.assertEqual(len(model().generate(source)), len(source))

    def test_ends_the_wait_for_a_piece(self):
        loaded = model()
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt), loaded.stream(texts() * 100000) as stream:
            for _ in stream:
                pass
        timer.join()
        self.assertEqual(len(model().generate(texts())), len(texts()))


if __name__ == "__main__":
    unittest.main()
