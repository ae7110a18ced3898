"""Tests of the arithmetic and tables of the comparisons and curves of bench/."""

import argparse
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the programs are loaded as modules

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


class Measuring(unittest.TestCase):
    def test_each_program_is_first_in_some_round(self):
        in_turns = load("compare_decoding").measuring.in_turns
        self.assertEqual([in_turns("abc", number) for number in range(4)],
                         [list("abc"), list("bca"), list("cab"), list("abc")])

    def test_a_failed_program_ends_with_its_errors(self):
        measuring = load("compare_decoding").measuring
        with self.assertRaisesRegex(SystemExit, "ls /no-such-folder failed"):
            measuring.run(["ls", "/no-such-folder"])


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


class CompareDecoding(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_decoding")

    def entries(self, trained=False):
        program = self.program.Program
        drafted = program("fp32", "draftsmith", "fp32", "assisted, small", ("--method", "assisted"))
        speeds = {program("fp32", "ctranslate2", "float32", "MKL"): [100, 200],
                  program("fp32", "ctranslate2", "float32", "oneDNN"): [50, 400],
                  program("fp32", "draftsmith", "fp32"): [150, 200],
                  drafted: [300, 600],
                  program("bf16", "draftsmith", "bf16"): [200, 100]}
        if not trained:
            speeds[program("fp32", "transformers", "float32")] = [10, 10]
        rounds = {key: [{"tokens_per_second": value, "ids": [[1, 2], [key.name == "transformers"]]} for value in values]
                  for key, values in speeds.items()}
        return self.program.summary_of("ctranslate2", rounds)

    def test_ratios_are_to_the_peers_best_setting_and_to_our_greedy_of_the_same_round(self):
        entries = {entry["program"]: entry for entry in self.entries()}
        self.assertEqual(entries["draftsmith fp32, greedy"]["to_same_type"], [1.5, 0.5])
        self.assertEqual(entries["draftsmith bf16, greedy"]["to_same_type"], [])
        self.assertEqual(entries["draftsmith bf16, greedy"]["to_any_type"], [2.0, 0.25])
        self.assertEqual(entries["draftsmith fp32, assisted, small"]["to_greedy"], [2, 3])

    def test_outputs_are_compared_with_transformers_or_with_our_greedy_ones(self):
        self.assertEqual([entry["equal_outputs"] for entry in self.entries()], [1, 1, 1, 1, 1, 2])
        self.assertEqual([entry["equal_outputs"] for entry in self.entries(trained=True)], [2] * 5)

    def test_a_type_that_the_peer_cannot_run_is_named(self):
        text = self.program.table_of("ctranslate2", self.entries())
        self.assertIn("| bf16 | ctranslate2 | not on this processor |", text)
        self.assertNotIn("| fp32 | ctranslate2 | not on this processor |", text)
        self.assertIn("| fp32 | draftsmith fp32, greedy | 175 (150–200) | 1.00 (0.50–1.50) |", text)


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

        options = argparse.Namespace(rounds=1, largest=None)
        result = self.program.measure_curve(self.program.curves()["output"], Place(), options)
        self.assertEqual([point["x"] for point in result["points"]], [64, 128])
        self.assertIn("256 new tokens were not measured: a run would take 655 s", result["stopped"])


if __name__ == "__main__":
    unittest.main()
