"""Tests of draftsmith.load and Model.generate."""

import json
import threading
import unittest
import warnings

import numpy as np
import torch

import draftsmith
from fixtures import model, program, texts, trained


class Generate(unittest.TestCase):
    def test_gives_what_the_program_prints(self):
        flags = ["--model", trained() / "target/model", "--drafter", trained() / "drafter/model", "--device", "cpu"]
        printed = program("generate", *flags, "--method", "assisted", "--max-new-tokens", 12, "--log-probs", "--json",
                          "--quiet", input="\n".join(texts()) + "\n")
        expected = [json.loads(line) for line in printed.stdout.splitlines()]
        results = model().generate(texts(), method="assisted", max_new_tokens=12, log_probs=True)
        self.assertEqual([result.text for result in results], [line["text"] for line in expected])
        self.assertEqual([result.ids.tolist() for result in results], [line["ids"] for line in expected])
        for result, line in zip(results, expected):
            np.testing.assert_allclose(result.log_probabilities, line["log_probs"], rtol=1e-5)
            self.assertEqual(result.stats.keys(), line["stats"].keys())
            self.assertEqual(result.stats["target_runs"], line["stats"]["target_runs"])

    def test_assisted_output_is_the_targets_own(self):
        greedy = model().generate(texts())
        assisted = model().generate(texts(), method="assisted")
        self.assertEqual([result.ids.tolist() for result in greedy], [result.ids.tolist() for result in assisted])
        self.assertLess(sum(result.stats["target_runs"] for result in assisted),
                        sum(result.stats["target_runs"] for result in greedy))

    def test_takes_ids_of_lists_arrays_and_tensors(self):
        ids = [[5, 6, 7, 1], [8, 9, 10, 1]]
        expected = [result.ids.tolist() for result in model().generate(ids)]
        for inputs in (np.array(ids), np.array(ids, dtype=np.int32), torch.tensor(ids), [torch.tensor(row) for row in ids],
                       tuple(np.array(row) for row in ids)):
            self.assertEqual([result.ids.tolist() for result in model().generate(inputs)], expected)
        self.assertEqual([result.ids.tolist() for result in model().generate(ids[0])], expected[:1])
        self.assertEqual([result.ids.tolist() for result in model().generate(torch.tensor(ids[1]))], expected[1:])
        self.assertEqual(model().generate([]), [])

    def test_ids_become_a_tensor_without_a_copy(self):
        ids = model().generate(texts()[0])[0].ids
        self.assertEqual(torch.from_numpy(ids).data_ptr(), ids.ctypes.data)
        self.assertEqual(ids.dtype, np.int64)

    def test_samples_depend_on_the_seed_alone(self):
        draw = lambda seed: [result.ids.tolist() for result in model().generate(  # noqa: E731
            texts(), method="sample", temperature=1.5, num_samples=3, seed=seed, batch_size=2)]
        self.assertEqual(len(draw(1)), 3 * len(texts()))
        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_beams_have_scores(self):
        results = model().generate(texts()[0], method="beam", num_beams=3, n_best=2)
        self.assertEqual(len(results), 2)
        self.assertGreaterEqual(results[0].score, results[1].score)

    def test_rows_are_flat(self):
        row = model().generate(texts()[0], method="assisted")[0].row()
        self.assertGreater(row["seconds_verify"], 0)
        self.assertTrue(all(value is None or isinstance(value, (str, int, float)) for value in row.values()))

    def test_threads_take_turns(self):
        expected = [result.ids.tolist() for result in model().generate(texts(), method="assisted")]
        found = [None] * 4

        def decode(index):
            found[index] = [result.ids.tolist() for result in model().generate(texts(), method="assisted")]

        threads = [threading.Thread(target=decode, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 4)

    def test_threads_with_options_of_their_own_do_not_mix(self):
        calls = [{}, {"method": "assisted"}, {"method": "sample", "seed": 3}, {"method": "beam", "num_beams": 2},
                 {"method": "speculative", "window": 0}]  # the last one is wrong
        own = draftsmith.load(trained() / "target/model", drafter=trained() / "drafter/model", device="cpu")
        expected = [[result.ids.tolist() for result in own.generate(texts(), **call)] for call in calls[:-1]]
        found, errors = [[] for _ in calls], []

        def decode(index):
            for _ in range(3):
                try:
                    found[index].append([result.ids.tolist() for result in own.generate(texts(), **calls[index])])
                except draftsmith.UserError as error:
                    errors.append(error)

        threads = [threading.Thread(target=decode, args=(index,)) for index in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found[:-1], [[ids] * 3 for ids in expected])
        self.assertEqual((found[-1], len(errors)), ([], 3))

    def test_decodes_with_a_tandem(self):
        tandem = draftsmith.load(trained() / "target/model", drafter=trained() / "tandem/model", device="cpu")
        found = tandem.generate(texts(), method="tandem-speed", window=4)
        self.assertEqual([result.text for result in found], [result.text for result in model().generate(texts())])


class Options(unittest.TestCase):
    def test_are_the_flags_of_the_program(self):
        help_text = program("generate", "--help").stdout
        names = {option["name"] for option in draftsmith.options()}
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertIn("--" + name.replace("_", "-"), help_text)

    def test_errors_name_what_was_expected(self):
        cases = [
            ({"methd": "greedy"}, "did you mean 'method'"),
            ({"window": 0, "method": "speculative"}, "an integer, 1 to 256"),
            ({"window": "four", "method": "speculative"}, "wrong type"),
            ({"method": "asisted"}, "did you mean 'assisted'"),
            ({"temperature": 1.0, "method": "assisted"}, "speculative"),
            ({"stop_strings": "x"}, "a list"),
            ({"seed": -1}, "at least 0"),
            ({"top_k": object()}, "a type that no option has"),
        ]
        for options, message in cases:
            with self.subTest(options=options), self.assertRaises(draftsmith.UserError) as caught:
                model().generate("x", **options)
            self.assertIn(message, str(caught.exception))
            self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(draftsmith.UserError) as caught:
            model().generate("x", window=0, max_new_tokens=0)
        self.assertEqual({problem["where"] for problem in caught.exception.problems}, {"window", "max_new_tokens"})

    def test_none_is_the_default(self):
        self.assertEqual(model().generate(texts()[0], temperature=None, stop_strings=None)[0].ids.tolist(),
                         model().generate(texts()[0])[0].ids.tolist())

    def test_seeds_reach_64_bits(self):
        model().generate(texts()[0], method="sample", seed=2**64 - 1)

    def test_an_option_without_effect_is_a_warning(self):
        with self.assertWarnsRegex(draftsmith.DraftsmithWarning, "window has no effect on method greedy"):
            model().generate(texts()[0], window=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(draftsmith.DraftsmithWarning):
                model().generate(texts()[0], window=3)


class BadInput(unittest.TestCase):
    def raises(self, message, *arguments, **options):
        with self.assertRaises(draftsmith.UserError) as caught:
            model().generate(*arguments, **options)
        self.assertIn(message, str(caught.exception))

    def test_inputs_that_are_neither_text_nor_ids(self):
        self.raises("no list of token ids", [[1.5, 2.5]])
        self.raises("no list of token ids", [[[1, 2], [3, 4]]])
        self.raises("neither text nor token ids", [[[1, 2], [3]]])
        self.raises("outside", [[1, 1 << 40]])
        self.raises("outside", [[-3]])

    def test_a_directory_that_is_no_model(self):
        with self.assertRaises(draftsmith.UserError):
            draftsmith.load(trained() / "language")
        with self.assertRaises(draftsmith.UserError) as caught:
            draftsmith.load(trained() / "target/model", dtype="fp31")
        self.assertIn("fp32, bf16, fp16, fp64 or int8", str(caught.exception))
        with self.assertRaises(draftsmith.UserError) as caught:
            draftsmith.load(trained() / "target/model", device="tpu")
        self.assertNotIn("--", str(caught.exception))

    def test_a_drafter_of_another_tokenizer(self):
        work = trained().parent / "other"
        draftsmith.train(draftsmith.recipe("tiny"), work, until="drafter", quiet=True, device="cpu",
                         set={"tokenizer.vocabulary": 120, "drafter.training.length": "1 steps",
                              "target.training.length": "1 steps"})
        mixed = draftsmith.load(trained() / "target/model", drafter=work / "drafter/model", device="cpu")
        with self.assertRaises(draftsmith.UserError) as caught:
            mixed.generate(texts()[0], method="speculative")
        self.assertIn("tokenizers with different pieces", str(caught.exception))
        self.assertEqual(len(mixed.generate(texts()[0])), 1)

    def test_a_missing_drafter(self):
        alone = draftsmith.load(trained() / "target/model", device="cpu")
        with self.assertRaises(draftsmith.UserError) as caught:
            alone.generate(texts()[0], method="speculative")
        self.assertIn("give one with drafter", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
