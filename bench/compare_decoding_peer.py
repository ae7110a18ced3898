"""One measurement of one peer, in a process of its own (CTranslate2 beside torch in one process loses half its speed).

    compare_decoding_peer.py make DIR LAYERS WIDTH HEADS FF   # a random-weight T5, as Hugging Face and CTranslate2 write it
    compare_decoding_peer.py transformers|ctranslate2 DIR SOURCES NEW_TOKENS THREADS

SOURCES holds one line of token ids a source; the first is a warm-up. Prints JSON: seconds (of all others) and ids.
"""

import json
import sys
import time

VOCABULARY = 32128
PAD, EOS, UNK = 0, 1, 2


class IdTokenizer:
    """What CTranslate2's converter asks of a tokenizer: here, each id is its own name."""
    pad_token, eos_token, unk_token = "0", "1", "2"

    def get_vocab(self):
        return {str(token): token for token in range(VOCABULARY)}

    def convert_ids_to_tokens(self, token):
        return str(token)


def make(folder, layers, width, heads, ff_width):
    import ctranslate2
    import torch
    import transformers
    torch.manual_seed(17)
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=width, d_kv=64, d_ff=ff_width, num_layers=layers, num_decoder_layers=layers,
        num_heads=heads, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD)
    transformers.T5ForConditionalGeneration(config).eval().save_pretrained(f"{folder}/hf", safe_serialization=True)

    class Converter(ctranslate2.converters.TransformersConverter):
        def load_tokenizer(self, tokenizer_class, model_name_or_path, **arguments):
            return IdTokenizer()

    Converter(f"{folder}/hf").convert(f"{folder}/ctranslate2", force=True)


def measure(generate, sources):
    """Seconds for all sources but the first, which warms up, and the ids of all but the first."""
    generate(sources[0])
    start = time.perf_counter()
    ids = [generate(source) for source in sources[1:]]
    return {"seconds": time.perf_counter() - start, "ids": ids}


def transformers_generate(folder, new_tokens, threads):
    import torch
    import transformers
    torch.set_num_threads(threads)
    model = transformers.T5ForConditionalGeneration.from_pretrained(f"{folder}/hf").eval()

    def generate(source):
        with torch.inference_mode():
            output = model.generate(torch.tensor([source]), attention_mask=torch.ones(1, len(source), dtype=torch.int64),
                                    do_sample=False, num_beams=1, min_new_tokens=new_tokens, max_new_tokens=new_tokens)
        return output[0, 1:].tolist()
    return generate


def ctranslate2_generate(folder, new_tokens, threads):
    # Its converters import torch where they can, and torch's OpenMP in the same process halves CTranslate2's speed.
    sys.modules["torch"] = sys.modules["transformers"] = None
    import ctranslate2
    translator = ctranslate2.Translator(f"{folder}/ctranslate2", device="cpu", compute_type="float32", inter_threads=1,
                                        intra_threads=threads)

    def generate(source):
        result = translator.translate_batch([[str(token) for token in source]], beam_size=1,
                                            min_decoding_length=new_tokens, max_decoding_length=new_tokens)
        return [int(token) for token in result[0].hypotheses[0]]
    return generate


def main():
    command, folder, *rest = sys.argv[1:]
    if command == "make":
        make(folder, *map(int, rest))
        return
    with open(rest[0]) as file:
        sources = [[int(token) for token in line.split()] for line in file]
    new_tokens, threads = map(int, rest[1:])
    peer = {"transformers": transformers_generate, "ctranslate2": ctranslate2_generate}[command]
    print(json.dumps(measure(peer(folder, new_tokens, threads), sources)))


if __name__ == "__main__":
    main()
