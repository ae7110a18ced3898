"""Tests of the arithmetic and tables of the comparisons and curves of bench/."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # the programs are loaded as modules

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


def printed(function, *arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        function(*arguments)
    return output.getvalue()


class Measuring(unittest.TestCase):
    def test_each_program_is_first_in_some_round(self):
        in_turns = load("compare_decoding").measuring.in_turns
        self.assertEqual([in_turns("abc", number) for number in range(4)],
                         [list("abc"), list("bca"), list("cab"), list("abc")])

    def test_a_failed_program_ends_with_its_errors(self):
        measuring = load("compare_decoding").measuring
        with self.assertRaisesRegex(SystemExit, "ls /no-such-folder failed"):
            measuring.run(["ls", "/no-such-folder"])


    def test_what_was_written_by_hand_stays_when_a_page_is_written_again(self):
        measuring = load("compare_decoding").measuring
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            measuring.write_page(page, "old\n")
            page.write_text(page.read_text() + f"\n{measuring.BY_HAND}\n\n* A caveat.\n")
            measuring.write_page(page, "new\n")
            self.assertEqual(page.read_text(), f"new\n\n{measuring.BY_HAND}\n\n* A caveat.\n")


    def test_machines_of_several_calls_are_joined(self):
        machines = load("compare_decoding").measuring.machines
        self.assertEqual(machines(["Xeon, 2 cores, commit b, 2026-11-23", "Xeon, 2 cores, commit a, 2026-11-23"]),
                         "Xeon, 2 cores, commits a, b, 2026-11-23")


class CompareTraining(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_training")

    def summary(self, dropout):
        def run(speed, peak, loss):
            return {"tokens_per_second": speed, "peak_memory_mb": peak, "memory_before_mb": 10, "losses": [8.0, loss]}

        runs = {"draftsmith": [run(150, 70, 7.0), run(100, 70, 7.0)],
                "sdpa": [run(100, 100, 7.0002), run(200, 90, 7.0002)],
                "eager": [run(90, 110, 7.0003), run(250, 110, 7.0003)]}
        return self.program.summary_of(self.program.Case("fp32", 8, dropout), runs)

    def test_ratios_are_to_the_peers_fastest_setting_of_the_same_round(self):
        summary = self.summary(0.1)
        self.assertEqual(summary["theirs"]["tokens_per_second"], [100, 250])
        self.assertEqual(summary["speed"], [1.5, 0.4])
        self.assertEqual(summary["memory"], [0.7, 70 / 110])
        self.assertEqual(summary["peer"], "eager")

    def test_losses_are_compared_without_dropout_alone(self):
        self.assertIsNone(self.summary(0.1)["loss_difference"])
        self.assertAlmostEqual(self.summary(0)["loss_difference"], 0.0002)
        self.assertAlmostEqual(self.summary(0)["loss_rounding"], 0.0001)

    def test_goals_that_are_missed_are_named(self):
        lines = list(self.program.verdicts([self.summary(0), self.summary(0.1)]))
        self.assertIn("1.3 times PyTorch's tokens/s without dropout: 0.95 to 0.95, missed in 1 of 1 cases.", lines[0])
        self.assertIn("1.5 times PyTorch's tokens/s with dropout: 0.95 to 0.95, missed in 1 of 1 cases.", lines[1])
        self.assertIn("at most 0.8 of its peak memory: 0.67 to 0.67, reached.", lines[2])
        self.assertIn("within 0.0001: 0.00020 to 0.00020, missed in 1 of 1 cases.", lines[3])


class CompareDecoding(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_decoding")
        self.options = argparse.Namespace(dtype=["fp32", "bf16"], batch_size=1, threads=2, new_tokens=2)

    def rounds(self):
        program = self.program.Program
        speeds = {program("fp32", "ctranslate2", "float32", "MKL"): [100, 200],
                  program("fp32", "ctranslate2", "float32", "oneDNN"): [50, 400],
                  program("fp32", "transformers", "float32"): [10, 10],
                  program("fp32", "draftsmith", "fp32"): [150, 200],
                  program("bf16", "draftsmith", "bf16"): [200, 100]}
        return {key: [{"tokens_per_second": value, "ids": [[1, 2]]} for value in values]
                for key, values in speeds.items()}

    def test_ratios_are_to_the_peers_best_setting_of_the_same_round(self):
        shape = self.program.SHAPES["drafter"]
        entries = {entry["program"]: entry for entry in self.program.summary_of(shape, self.rounds(), self.options)}
        self.assertEqual(entries["draftsmith fp32"]["ratio_to_same_type"], [1.5, 0.5])
        self.assertEqual(entries["draftsmith bf16"]["ratio_to_same_type"], [])
        self.assertEqual(entries["draftsmith bf16"]["ratio_to_any_type"], [2.0, 0.25])
        self.assertEqual(entries["draftsmith bf16"]["equal_outputs"], 1)

    def test_a_type_that_the_peer_cannot_run_is_named(self):
        shape = self.program.SHAPES["drafter"]
        entries = self.program.summary_of(shape, self.rounds(), self.options)
        text = printed(self.program.print_table, "drafter", shape, entries, self.options)
        self.assertIn("| bf16 | ctranslate2 | not on this processor |", text)
        self.assertNotIn("| fp32 | ctranslate2 | not on this processor |", text)
        self.assertIn("| fp32 | draftsmith fp32 | 175 (150–200) | 1.00 (0.50–1.50) |", text)


class Scale(unittest.TestCase):
    def setUp(self):
        self.program = load("scale")

    def points(self, power):
        return [{"x": x, "seconds": 3 * x ** power, "extra_mb": 100 * x ** power} for x in (1, 2, 4)]

    def test_exponents_are_the_slopes_of_logarithms(self):
        for power in (0.5, 1, 2):
            found = self.program.exponents(self.points(power))
            for slope in (*found["time"], *found["memory"]):
                self.assertAlmostEqual(slope, power)

    def test_what_is_worse_than_linear_is_marked_at_the_curves_end_too(self):
        self.assertIn("worse than linear", self.program.exponent_text("time", (0.9, 1.5)))
        self.assertNotIn("worse than linear", self.program.exponent_text("time", (1.0, 1.1)))
        self.assertEqual(self.program.exponent_text("memory", (None, None)), "memory does not grow")

    def test_a_run_that_would_take_too_long_is_foreseen_from_the_curve(self):
        self.assertEqual(self.program.would_take([], 8), 0)
        self.assertAlmostEqual(self.program.would_take(self.points(2), 8), 3 * 64)
        self.assertAlmostEqual(self.program.would_take(self.points(1)[:1], 8), 24)

    def test_a_curve_stops_before_a_run_over_the_limit(self):
        class Place:
            def measure(self, run):
                return 0.01 * run.new_tokens ** 2, 100 + run.new_tokens

        options = argparse.Namespace(rounds=1, largest=None, end=float("inf"))
        result = self.program.measure_curve(self.program.curves()["output"], Place(), options)
        self.assertEqual([point["x"] for point in result["points"]], [64, 128])
        self.assertIn("256 new tokens were not measured: a run would take 655 s", result["stopped"])

    def test_a_call_out_of_time_leaves_the_rest_to_the_next_call(self):
        measured = []

        class Place:
            def measure(self, run):
                measured.append(run.new_tokens)
                return 0.01 * run.new_tokens, 100

        kept = []
        curve = self.program.curves()["output"]
        options = argparse.Namespace(rounds=1, largest=None, end=float("-inf"))
        with self.assertRaises(self.program.OutOfTime):
            self.program.measure_curve(curve, Place(), options, None, kept.append)
        options.end = float("inf")
        result = self.program.measure_curve(curve, Place(), options,
                                            {"title": "", "unit": "", "base_mb": 1.0, "stopped": None,
                                             "points": [{"x": 64, "seconds": 1, "extra_mb": 0, "wall": 1}]})
        self.assertEqual([point["x"] for point in result["points"]], [64, 128, 256, 512, 1024])
        self.assertNotIn(64, measured)

    def test_the_plot_shows_each_curve_over_its_first_point(self):
        text = self.program.plot.relative_growth({"batch": [(1, 3), (10, 30)], "output": [(64, 1), (640, 100)]}, "x", "y")
        self.assertEqual(text.count("<circle"), 4)
        self.assertIn(">batch</text>", text)
        self.assertIn(">linear</text>", text)


class CompareTranslation(unittest.TestCase):
    def test_ratios_are_to_the_faster_backend_and_to_our_greedy_of_the_round(self):
        program = load("compare_translation")
        mkl, onednn = (program.Setting("int8", f"CTranslate2 greedy, {name}", backend=name)
                       for name in ("MKL", "oneDNN"))
        greedy, drafted = program.Setting("int8", "greedy"), program.Setting("int8", "assisted, aligned")
        ids, other = [[5, 6], [7, 8, 9]], [[5, 6], [7, 8, 1]]
        rounds = {mkl: [{"seconds": 4, "ids": ids}, {"seconds": 3, "ids": ids}],
                  onednn: [{"seconds": 2, "ids": other}, {"seconds": 6, "ids": other}],
                  greedy: [{"seconds": 1, "ids": ids}, {"seconds": 1, "ids": ids}],
                  drafted: [{"seconds": 0.5, "ids": ids}, {"seconds": 0.25, "ids": ids}]}
        entries = {entry["setting"]: entry for entry in program.summary_of(rounds)}
        self.assertEqual(entries["assisted, aligned"]["to_greedy"], [2, 4])
        self.assertEqual(entries["assisted, aligned"]["to_ctranslate2"], [4, 12])
        self.assertEqual(entries["assisted, aligned"]["tokens_per_second"], [10, 20])
        self.assertEqual(entries["CTranslate2 greedy, oneDNN"]["equal_outputs"], 1)
        self.assertEqual(program.without_end([3, 1], 1), program.without_end([3], 1))


if __name__ == "__main__":
    unittest.main()
