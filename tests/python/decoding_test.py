"""Tests of draftsmith.load, Model.generate and Model.stream."""

import gc
import json
import os
import threading
import unittest
import unittest.mock
import warnings

import numpy as np
import torch

import draftsmith
from draftsmith import _toml
from fixtures import model, program, python, texts, trained


def ids_of(results):
    return [result.ids.tolist() for result in results]


class Generate(unittest.TestCase):
    def test_gives_what_the_program_prints(self):
        flags = ["--model", trained() / "target/model", "--drafter", trained() / "drafter/model", "--device", "cpu"]
        printed = program("generate", *flags, "--method", "assisted", "--max-new-tokens", 12, "--json", "--quiet",
                          input="\n".join(texts()) + "\n")
        expected = [json.loads(line) for line in printed.stdout.splitlines()]
        results = model().generate(texts(), method="assisted", max_new_tokens=12)
        self.assertEqual([result.text for result in results], [line["text"] for line in expected])
        self.assertEqual(ids_of(results), [line["ids"] for line in expected])
        for result, line in zip(results, expected):
            self.assertEqual(result.stats.keys(), line["stats"].keys())
            self.assertEqual(result.stats["target_runs"], line["stats"]["target_runs"])
        self.assertTrue(all(value is None or isinstance(value, (str, int, float)) for value in results[0].row().values()))

    def test_takes_ids_of_lists_arrays_and_tensors(self):
        ids = [[5, 6, 7, 1], [8, 9, 10, 1]]
        expected = ids_of(model().generate(ids))
        for inputs in (np.array(ids, dtype=np.int32), torch.tensor(ids), tuple(np.array(row) for row in ids)):
            self.assertEqual(ids_of(model().generate(inputs)), expected)
        self.assertEqual(ids_of(model().generate(ids[0])), expected[:1])
        self.assertEqual(ids_of(model().generate(torch.tensor(ids[1]))), expected[1:])
        self.assertEqual(model().generate([]), [])
        found = model().generate(ids[0])[0].ids
        self.assertEqual(torch.from_numpy(found).data_ptr(), found.ctypes.data)

    def test_samples(self):
        def draw(seed):
            return ids_of(model().generate(texts(), method="sample", temperature=1.5, num_samples=3, seed=seed,
                                           batch_size=2))
        self.assertEqual(len(draw(1)), 3 * len(texts()))
        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2**63 - 1))

    def test_threads_take_turns_and_do_not_mix_their_options(self):
        calls = [{}, {"method": "assisted"}, {"method": "sample", "seed": 3}, {"method": "speculative", "window": 0}]
        expected = [ids_of(model().generate(texts(), **call)) for call in calls[:-1]]
        found, errors = [[] for _ in calls], []

        def decode(index):
            for _ in range(3):
                try:
                    found[index].append(ids_of(model().generate(texts(), **calls[index])))
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
        cases = [({"methd": "greedy"}, "did you mean 'method'"),
                 ({"window": "four", "method": "speculative"}, "wrong type"),
                 ({"temperature": 1.0, "method": "assisted"}, "speculative"),
                 ({"stop_strings": "x"}, "a list"),
                 ({"seed": -1}, "at least 0"),
                 ({"top_k": object()}, "a type that no option has")]
        for options, message in cases:
            with self.subTest(options=options), self.assertRaises(draftsmith.UserError) as caught:
                model().generate("x", **options)
            self.assertIn(message, str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            model().generate("x", window=0, max_new_tokens=0)
        self.assertEqual({problem["where"] for problem in caught.exception.problems}, {"window", "max_new_tokens"})

    def test_values_reach_the_module_as_they_are(self):
        stop = 'a "quoted"\n\\ \x7f ü'
        found = model().generate(texts()[0], stop_strings=(stop,), temperature=None)
        self.assertEqual(ids_of(found), ids_of(model().generate(texts()[0])))

    def test_an_option_without_effect_is_a_warning(self):
        with self.assertWarnsRegex(draftsmith.DraftsmithWarning, "window has no effect on method greedy") as caught:
            model().generate(texts()[0], window=3)
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(draftsmith.DraftsmithWarning):
                model().generate(texts()[0], window=3)


class BadInput(unittest.TestCase):
    def raises(self, message, call, *arguments, **options):
        with self.assertRaises(draftsmith.UserError) as caught:
            call(*arguments, **options)
        self.assertIn(message, str(caught.exception))
        self.assertNotIn("--", str(caught.exception))

    def test_inputs_that_are_neither_text_nor_ids(self):
        self.raises("no list of token ids", model().generate, [[1.5, 2.5]])
        self.raises("no list of token ids", model().generate, [[[1, 2], [3, 4]]])
        self.raises("neither text nor token ids", model().generate, [[[1, 2], [3]]])
        self.raises("outside", model().generate, [[1, 1 << 40]])
        for wrong in ({"input_ids": [[1, 2]], "attention_mask": [[1, 1]]}, b"text"):
            self.raises("neither text nor token ids", model().generate, wrong)

    def test_models_that_do_not_fit(self):
        target = trained() / "target/model"
        self.raises("", draftsmith.load, trained() / "language")
        self.raises("fp32, bf16, fp16, fp64 or int8", draftsmith.load, target, dtype="fp31")
        self.raises("unknown device", draftsmith.load, target, device="tpu")
        self.raises("give one with drafter", draftsmith.load(target, device="cpu").generate, "x", method="speculative")
        work = trained().parent / "other"
        draftsmith.train(draftsmith.recipe("tiny"), work, until="drafter", quiet=True, device="cpu",
                         set={"tokenizer.vocabulary": 120, "drafter.training.length": "1 steps",
                              "target.training.length": "1 steps"})
        mixed = draftsmith.load(target, drafter=work / "drafter/model", device="cpu")
        self.raises("tokenizers with different pieces", mixed.generate, texts()[0], method="speculative")
        self.assertEqual(len(mixed.generate(texts()[0])), 1)


class Streams(unittest.TestCase):
    def test_pieces_make_up_the_results(self):
        expected = model().generate(texts(), method="assisted", batch_size=2)
        with model().stream(texts(), method="assisted", batch_size=2) as stream:
            pieces = list(stream)
            results = stream.results()
        self.assertEqual(ids_of(results), ids_of(expected))
        for index, result in enumerate(expected):
            own = [piece for piece in pieces if piece.output == index]
            self.assertEqual("".join(piece.text for piece in own), result.text)
            self.assertEqual([token for piece in own for token in piece.ids.tolist()], result.ids.tolist())
            self.assertEqual([piece.finished for piece in own], [False] * (len(own) - 1) + [True])

    def test_closing_early_frees_the_model(self):
        for _ in range(3):
            with model().stream(texts() * 200) as stream:
                next(stream)
                with self.assertRaises(draftsmith.BusyError) as caught:
                    model().generate(texts()[0])
                self.assertIn("close()", str(caught.exception))
            self.assertEqual((list(stream), stream.results()), ([], []))
            stream.close()
        self.assertLess(len(os.listdir("/proc/self/task")), 100)
        stream = model().stream(texts() * 200)
        next(stream)
        del stream
        gc.collect()
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_a_lost_stream_may_be_collected_while_a_call_is_refused(self):
        class Collecting(draftsmith.BusyError):
            def __init__(self, *texts, **more):
                gc.collect()
                super().__init__(*texts, **more)

        gc.disable()  # but where it is asked for
        self.addCleanup(gc.enable)
        keep = [model().stream(texts() * 200)]
        next(keep[0])
        keep.append(keep)
        del keep
        with unittest.mock.patch("draftsmith._model.BusyError", Collecting), self.assertRaises(draftsmith.BusyError):
            model().generate(texts()[0])
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_options_may_be_numpys(self):
        given = (np.bool_(True), np.array([1, 2]), np.float32(0.5))
        self.assertEqual([_toml.toml(value, "x") for value in given], ["true", "[1, 2]", "0.5"])

    def test_another_thread_reads_and_another_closes(self):
        expected = ids_of(model().generate(texts()))
        for inputs, closes in ((texts(), False), (texts() * 200, True)):
            stream, found = model().stream(inputs), []
            reader = threading.Thread(target=lambda: found.extend(stream))
            reader.start()
            if closes:
                stream.close()
            reader.join()
            self.assertEqual(ids_of(stream.results()), [] if closes else expected)

    def test_errors_come_from_the_iterator(self):
        stream = model().stream([[1 << 40]])
        with self.assertRaises(draftsmith.UserError):
            next(stream)
        self.assertEqual(list(stream), [])
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_the_interpreter_ends_with_an_open_stream(self):
        python("import draftsmith, sys\n"
               "model = draftsmith.load(sys.argv[1], device='cpu')\n"
               "stream = model.stream([[5, 6, 1]] * 500)\n"
               "next(stream)\n"
               "keep = [stream]; keep.append(keep)\n", trained() / "target/model")


if __name__ == "__main__":
    unittest.main()
