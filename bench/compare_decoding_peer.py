r"""One measurement of one peer, in a process of its own (CTranslate2 beside torch in one process loses half its speed).

    compare_decoding_peer.py make DIR ARCHITECTURE CONFIG    # DIR/hf: a model of random weights; CONFIG is JSON
    compare_decoding_peer.py convert DIR        # DIR/hf into DIR/ctranslate2
    compare_decoding_peer.py types              # CTranslate2's compute types here, with the backend of CT2_USE_MKL
    compare_decoding_peer.py transformers|ctranslate2|llama.cpp DIR SOURCES TYPE NEW_TOKENS THREADS BATCH FEWEST

SOURCES holds one line of token ids a source; the first BATCH warm up. TYPE is the program's own name of its weights';
llama.cpp reads DIR/<type>.gguf.
FEWEST: an output has so many tokens at least; llama.cpp's always has all NEW_TOKENS.
Prints JSON: seconds (of all others) and ids.
"""

import ctypes
import json
import pathlib
import sys
import time


class IdTokenizer:
    """What CTranslate2's converter asks of a tokenizer: here, each id is its own name, but for a Marian's padding."""
    pad_token, eos_token, unk_token, bos_token = "0", "1", "2", "2"

    def __init__(self, config):
        self.names = [str(token) for token in range(config["vocab_size"])]
        if config["model_type"] == "marian":
            self.names[config["pad_token_id"]] = "<pad>"

    def get_vocab(self):
        return {name: token for token, name in enumerate(self.names)}

    def convert_ids_to_tokens(self, token):
        return self.names[token]


def make(folder, architecture, settings):
    import torch
    import transformers
    model_class = getattr(transformers, architecture)
    torch.manual_seed(17)
    model = model_class(model_class.config_class(**json.loads(settings)))
    model.eval().save_pretrained(f"{folder}/hf", safe_serialization=True)


def convert(folder):
    import ctranslate2
    config = json.loads(pathlib.Path(f"{folder}/hf/config.json").read_text())

    class Converter(ctranslate2.converters.TransformersConverter):
        def load_tokenizer(self, tokenizer_class, model_name_or_path, **arguments):
            return IdTokenizer(config)

    Converter(f"{folder}/hf").convert(f"{folder}/ctranslate2", force=True)


def measure(generate, sources, batch):
    """Seconds for all sources but the first batch, which warms up, and the ids of these."""
    batches = [sources[begin:begin + batch] for begin in range(0, len(sources), batch)]
    generate(batches[0])
    start = time.perf_counter()
    ids = [row for rows in batches[1:] for row in generate(rows)]
    return {"seconds": time.perf_counter() - start, "ids": ids}


def transformers_generate(folder, dtype, new_tokens, threads, fewest):
    import torch
    import transformers
    torch.set_num_threads(threads)
    config = transformers.AutoConfig.from_pretrained(f"{folder}/hf")
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(f"{folder}/hf", dtype=getattr(torch, dtype)).eval()

    def generate(sources):
        tokens = torch.tensor(sources)
        skipped = 1 if config.is_encoder_decoder else tokens.shape[1]
        with torch.inference_mode():
            output = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, num_beams=1,
                                    min_new_tokens=fewest, max_new_tokens=new_tokens)
        return output[:, skipped:].tolist()
    return generate


def ctranslate2_alone():
    # Its converters import torch where they can, and torch's OpenMP in the same process halves CTranslate2's speed.
    sys.modules["torch"] = sys.modules["transformers"] = None
    import ctranslate2
    return ctranslate2


def ctranslate2_generate(folder, compute_type, new_tokens, threads, fewest):
    translator = ctranslate2_alone().Translator(f"{folder}/ctranslate2", device="cpu", compute_type=compute_type,
                                                inter_threads=1, intra_threads=threads)

    def generate(sources):
        results = translator.translate_batch([[str(token) for token in source] for source in sources], beam_size=1,
                                             min_decoding_length=fewest, max_decoding_length=new_tokens)
        return [[int(token) for token in result.hypotheses[0]] for result in results]
    return generate


def llama_cpp_generate(folder, file_format, new_tokens, threads, _fewest):
    """llama.cpp by its own interface of C: the wrappers of Python copy logits and cost time. The most likely token is
    NumPy's, which is faster than llama.cpp's samplers."""
    import llama_cpp
    import numpy
    config = json.loads(pathlib.Path(f"{folder}/hf/config.json").read_text())

    @llama_cpp.llama_log_callback
    def quiet(level, text, data):
        pass

    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(f"{folder}/{file_format}.gguf".encode(),
                                                 llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp cannot read {file_format}.gguf")
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch, settings.no_perf = 1024, threads, threads, True
    context = llama_cpp.llama_init_from_model(model, settings)

    def next_token(tokens):
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(tokens))) != 0:
            raise RuntimeError("llama.cpp cannot decode")
        address = ctypes.addressof(llama_cpp.llama_get_logits_ith(context, -1).contents)
        logits = numpy.frombuffer((ctypes.c_float * config["vocab_size"]).from_address(address), dtype=numpy.float32)
        logits[config["eos_token_id"]] = -numpy.inf
        return int(logits.argmax())

    def generate(sources):
        outputs = []
        for prompt in sources:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
            ids = [next_token((llama_cpp.llama_token * len(prompt))(*prompt))]
            while len(ids) < new_tokens:
                ids.append(next_token((llama_cpp.llama_token * 1)(ids[-1])))
            outputs.append(ids)
        return outputs
    generate.quiet = quiet  # the callback must live as long as the library calls it
    return generate


def main():
    command, *rest = sys.argv[1:]
    if command == "types":
        print(json.dumps(sorted(ctranslate2_alone().get_supported_compute_types("cpu"))))
    elif command == "make":
        make(*rest)
    elif command == "convert":
        convert(rest[0])
    else:
        folder, sources_file, dtype, *numbers = rest
        new_tokens, threads, batch, fewest = map(int, numbers)
        with open(sources_file) as file:
            sources = [[int(token) for token in line.split()] for line in file]
        peer = {"transformers": transformers_generate, "ctranslate2": ctranslate2_generate,
                "llama.cpp": llama_cpp_generate}[command]
        print(json.dumps(measure(peer(folder, dtype, new_tokens, threads, fewest), sources, batch)))


if __name__ == "__main__":
    main()
