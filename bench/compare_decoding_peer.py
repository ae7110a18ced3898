r"""One measurement of one peer, in a process of its own (CTranslate2 beside torch in one process loses half its speed).

    compare_decoding_peer.py make t5|llama DIR LAYERS WIDTH HEADS FF    # random weights in the formats of all peers
    compare_decoding_peer.py convert DIR        # DIR/hf, a T5, into CTranslate2's format: DIR/ctranslate2
    compare_decoding_peer.py types              # CTranslate2's compute types here, with the backend of CT2_USE_MKL
    compare_decoding_peer.py transformers|ctranslate2|llama.cpp DIR SOURCES TYPE NEW_TOKENS THREADS BATCH \
        [FEWEST]

SOURCES holds one line of token ids a source; the first BATCH warm up. TYPE is the program's own name of its weights'.
FEWEST: an output has so many tokens at least; by default all NEW_TOKENS. llama.cpp's always has all.
Prints JSON: seconds (of all others) and ids.
"""

import json
import pathlib
import sys
import time

import compare_decoding_llama

VOCABULARY = 32128
PAD, EOS = 0, 1


class IdTokenizer:
    """What CTranslate2's converter asks of a tokenizer: here, each id is its own name."""
    pad_token, eos_token, unk_token = "0", "1", "2"

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def get_vocab(self):
        return {str(token): token for token in range(self.vocabulary)}

    def convert_ids_to_tokens(self, token):
        return str(token)


def make_t5(folder, layers, width, heads, ff_width):
    import torch
    import transformers
    torch.manual_seed(17)
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=width, d_kv=64, d_ff=ff_width, num_layers=layers, num_decoder_layers=layers,
        num_heads=heads, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD)
    transformers.T5ForConditionalGeneration(config).eval().save_pretrained(f"{folder}/hf", safe_serialization=True)
    convert_t5(folder)


def convert_t5(folder):
    import ctranslate2
    vocabulary = json.loads(pathlib.Path(f"{folder}/hf/config.json").read_text())["vocab_size"]

    class Converter(ctranslate2.converters.TransformersConverter):
        def load_tokenizer(self, tokenizer_class, model_name_or_path, **arguments):
            return IdTokenizer(vocabulary)

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
    model = transformers.AutoConfig.from_pretrained(f"{folder}/hf")
    kind = transformers.AutoModelForSeq2SeqLM if model.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(f"{folder}/hf", dtype=getattr(torch, dtype)).eval()

    def generate(sources):
        tokens = torch.tensor(sources)
        skipped = 1 if model.config.is_encoder_decoder else tokens.shape[1]
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
    generate_one = compare_decoding_llama.generate(folder, file_format, new_tokens, threads)
    return lambda sources: [generate_one(source) for source in sources]


def main():
    command, *rest = sys.argv[1:]
    if command == "types":
        print(json.dumps(sorted(ctranslate2_alone().get_supported_compute_types("cpu"))))
        return
    if command == "make":
        kind, folder, *sizes = rest
        {"t5": make_t5, "llama": compare_decoding_llama.make}[kind](folder, *map(int, sizes))
        return
    if command == "convert":
        convert_t5(rest[0])
        return
    folder, sources_file, dtype, *numbers = rest
    new_tokens, threads, batch = map(int, numbers[:3])
    fewest = int(numbers[3]) if len(numbers) > 3 else new_tokens
    with open(sources_file) as file:
        sources = [[int(token) for token in line.split()] for line in file]
    peer = {"transformers": transformers_generate, "ctranslate2": ctranslate2_generate,
            "llama.cpp": llama_cpp_generate}[command]
    print(json.dumps(measure(peer(folder, dtype, new_tokens, threads, fewest), sources, batch)))


if __name__ == "__main__":
    main()
