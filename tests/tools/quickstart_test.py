"""Tests of ./quickstart in a copy with made-up set-up, build and program."""

import os
import pathlib
import shutil
import subprocess
import unittest

from made_programs import MadePrograms

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Notes what it was called with. `train` writes results unless --until is among its arguments, and fails where asked to.
PROGRAM = """#!/bin/bash
printf '%s\\n' "$@" >>"$CALLS"
if [ "$1" = report ]; then echo "THE TABLE of $2"; exit; fi
[ "${FAILS:-}" = "" ] || { echo "error: no space" >&2; exit 1; }
echo "Results: a long list"
while [ $# -gt 0 ]; do
  [ "$1" != --work ] || work=$2
  [ "$1" != --until ] || exit 0
  shift
done
mkdir -p "$work/evaluation" && echo {} >"$work/evaluation/results.json"
[ "${DISTURBED:-}" = "" ] || { echo "error: measurement error" >&2; exit 1; }
"""


class Quickstart(MadePrograms):
    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "quickstart", self.root / "quickstart")
        self.add_program("tools/setup", "#!/bin/bash\necho SET UP\n")
        self.add_program("tools/build", "#!/bin/bash\necho BUILT $*\n")
        self.add_program("build/release/draftsmith", PROGRAM)
        self.add_program("bin/cut", "#!/bin/bash\necho ${LOAD:-0.10}\n")
        self.add_program("bin/nproc", "#!/bin/bash\necho 2\n")

    def run_quickstart(self, *arguments, **environment):
        self.calls.write_text("")
        base = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "CALLS": str(self.calls)}
        result = subprocess.run([self.root / "quickstart", *arguments], env={**base, **environment},
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return result, self.calls.read_text().splitlines()

    def test_says_what_will_happen_and_ends_with_table_page_and_commands(self):
        result, calls = self.run_quickstart()
        self.assertEqual(result.returncode, 0, result.stderr)
        parts = ["set-up ", "build ", "recipe ", "SET UP", "BUILT release draftsmith", "THE TABLE of work/quickstart",
                 "work/quickstart/evaluation/report.html", "generate --model", "plan --model", "docs/tutorial.md"]
        places = [result.stdout.find(part) for part in parts]
        self.assertNotIn(-1, places, result.stdout)
        self.assertEqual(places, sorted(places), result.stdout)
        self.assertNotIn("a long list", result.stdout)
        self.assertNotIn("Other programs", result.stdout)
        self.assertEqual(calls[:4], ["train", "recipes/quickstart.toml", "--work", "work/quickstart"])

    def test_small_takes_fewer_steps_in_a_folder_of_its_own(self):
        result, calls = self.run_quickstart("--small", "--set", "language.seed=3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(calls[2:4], ["--work", "work/quickstart_small"])
        self.assertTrue(any(word.startswith("target.training.length=") for word in calls), calls)
        self.assertIn("language.seed=3", calls)
        self.assertIn("THE TABLE of work/quickstart_small/evaluation", result.stdout)

    def test_another_folder_is_named_at_the_end(self):
        for arguments in (["--work", "else where"], ["--work=else where"]):
            result, calls = self.run_quickstart(*arguments)
            self.assertEqual(calls[2:4], ["--work", "else where"])
            self.assertIn("else where/evaluation/report.html", result.stdout)

    def test_the_cpu_computes_unless_a_device_is_named(self):
        for arguments, device in (([], "cpu"), (["--device", "cuda"], "cuda"), (["--device=auto"], "auto")):
            _, calls = self.run_quickstart(*arguments)
            self.assertEqual(calls[calls.index("--device") + 1], device)
            self.assertEqual(calls.count("--device"), 1)

    def test_ends_quietly_before_the_evaluation(self):
        result, _ = self.run_quickstart("--until", "target")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("TABLE", result.stdout)

    def test_a_failure_ends_it_with_its_message(self):
        result, _ = self.run_quickstart(FAILS="yes")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: no space", result.stderr)
        self.assertNotIn("TABLE", result.stdout)
        self.add_program("tools/setup", "#!/bin/bash\necho error: no network >&2; exit 2\n")
        result, calls = self.run_quickstart()
        self.assertEqual((result.returncode, calls), (2, []))

    def test_a_disturbed_measurement_ends_with_its_table_and_what_to_do(self):
        result, _ = self.run_quickstart(DISTURBED="yes")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: measurement error", result.stderr)
        places = [result.stdout.find(part) for part in ("THE TABLE of", "failed a check", "measures again", "Next:")]
        self.assertNotIn(-1, places, result.stdout)
        self.assertEqual(places, sorted(places))

    def test_a_table_of_an_earlier_run_is_not_shown_for_one_that_failed(self):
        self.run_quickstart()
        os.utime(self.root / "work/quickstart/evaluation/results.json", (1, 1))
        result, _ = self.run_quickstart(FAILS="yes")
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("TABLE", result.stdout)

    def test_a_busy_machine_is_named(self):
        result, _ = self.run_quickstart(LOAD="1.70")
        self.assertIn("Other programs are at work", result.stdout)


if __name__ == "__main__":
    unittest.main()
