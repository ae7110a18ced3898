"""Writes a Hugging Face directory from a GGUF file; import_gguf.cpp starts it
behind base/python_script.py, gguf_shared.py and gguf_tokenizer.py.

Reads {"file", "directory"}, writes settings, tokenizer and a weight file of zeros, and answers {"text": tensors}. Then
each line {"tensor": number} writes the numbers of one. Other answers: {"error": {what, expected, found, hint}}, and
{"missing"} for a module.
"""


class Reader(gguf.GGUFReader):
    """gguf's reader, which otherwise takes bytes behind a file's end for empty lists."""

    def _get(self, offset, dtype, count=1, *more, **named):
        end = int(offset) + int(count) * numpy.dtype(dtype).itemsize
        if end > len(self.data):
            raise Refusal("the file is cut short, or is no GGUF file", f"at least {end} bytes", f"{len(self.data)}")
        return super()._get(int(offset), dtype, int(count), *more, **named)


# ---- Families: llama.cpp's architecture, and what Transformers calls it

FAMILIES = {"llama": "Llama", "granite": "Granite", "smollm3": "SmolLM3", "qwen2": "Qwen2", "qwen3": "Qwen3",
            "olmo2": "Olmo2", "phi3": "Phi3", "gemma2": "Gemma2", "gemma3": "Gemma3", "gpt2": "GPT2"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYERS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
          "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
          "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
          "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS_BEHIND = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
GPT2_OUTSIDE = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
                "output": "lm_head"}
GPT2_LAYERS = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
               "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
# Keys of an architecture that say nothing about what a model computes, or that are checked with the weights.
BOOKKEEPING = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "attention.value_length")
NONE = (0, 0.0, False, "", [])


def shortest(value):
    """The decimal that a number of fp32 stands for: 1e-05, not 9.999999747e-06."""
    return float(str(numpy.float32(value)))


class Model:
    """What a file says of its model; keys that nobody has asked for at the end are refused."""

    def __init__(self, file):
        self.reader = Reader(file)
        if self.reader.byte_order != "I":
            raise Refusal("the file is of machines with another order of bytes", "a little-endian GGUF file")
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = self.value("general.architecture", kind=str)
        self.asked = set()
        head, embedding = self.tensors.get("output.weight"), self.tensors.get("token_embd.weight")
        self.tied = head is None or embedding is not None and head.tensor_type == embedding.tensor_type and \
            numpy.array_equal(head.data, embedding.data)
        if self.arch not in FAMILIES:
            raise Refusal("GGUF files of this family are not read", f"general.architecture of {', '.join(FAMILIES)}",
                          self.arch, "docs/reference/models.md lists the families of Hugging Face directories")

    def value(self, key, default=..., kind=None):
        field = self.reader.fields.get(key)
        value = default if field is None else field.contents()
        if value is ...:
            raise Refusal(f"the key {key} is missing", "a GGUF file of a model for text")
        if kind and field is not None and (not isinstance(value, kind) or isinstance(value, bool) and kind is not bool):
            raise Refusal(f"the key {key} has an unusable value", f"of type {kind.__name__}", repr(value))
        return value

    def own(self, key, default=..., kind=int):
        """A key of the architecture; one that is a list must say the same of all layers."""
        name = f"{self.arch}.{key}"
        self.asked.add(name)
        value = self.value(name, default)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        if name in self.reader.fields and (type(value) is not kind):
            raise Refusal(f"the key {name} has an unusable value", f"one {kind.__name__} for all layers", repr(value))
        return shortest(value) if kind is float and value is not None else value

    def refuse_others(self):
        for key in self.reader.fields:
            known = key in self.asked or key.removeprefix(self.arch + ".") in BOOKKEEPING
            if key.startswith(self.arch + ".") and not known and self.value(key) not in NONE:
                raise Refusal(f"the key {key} is not read, and may change what the model computes", "no such key, or 0",
                              repr(self.value(key)))

    def shape(self, name):
        if name not in self.tensors:
            raise Refusal(f"the tensor {name} is missing", "the tensors of a whole model")
        return [int(size) for size in reversed(self.tensors[name].shape)]


def factors_of_llama3(model, base, width):
    """The settings of a scaled rotation whose factors are rope_freqs.weight; low_freq_factor is 1 as in Llama 3."""
    factors = numpy.array(model.tensors["rope_freqs.weight"].data, numpy.float64).flatten()
    if len(factors) != width // 2 or not (factors >= 1).all():
        raise Refusal("the tensor rope_freqs.weight does not fit the model", f"{width // 2} numbers of at least 1",
                      f"{len(factors)} numbers")
    turns = base ** (-numpy.arange(0, width, 2) / width) / (2 * math.pi)  # of a position
    factor = factors.max()

    def made(length, high):
        share = ((length * turns - 1) / (high - 1)).clip(0, 1)
        return 1 / ((1 - share) / factor + share)

    between = numpy.flatnonzero((factors > 1 + 1e-6) & (factors < factor * (1 - 1e-6)))
    guesses = [(8192.0, 4.0)]
    if len(between) > 1 and factor > 1:
        share = (1 / factors[between] - 1 / factor) / (1 - 1 / factor)
        slope, start = numpy.polyfit(turns[between], share, 1)  # share = length / (high - 1) turns - 1 / (high - 1)
        guesses.append((-slope / start, 1 - 1 / start))
    elif len(between) == 1:
        share = (1 / factors[between[0]] - 1 / factor) / (1 - 1 / factor)
        guesses.append(((share * 3 + 1) / turns[between[0]], 4.0))
    elif (factors == 1).any() and (factors > 1).any():
        low, high = turns[factors > 1].max(), turns[factors == 1].min()
        guesses.append((1 / low * 0.999, max(1.001, high / low * 0.998)))
    for length, high in guesses:
        length, high = [round(one) if abs(one - round(one)) < 1e-3 * one else float(one) for one in (length, high)]
        if high > 1 and numpy.allclose(made(round(length), high), factors, rtol=2e-5, atol=0):
            return {"rope_type": "llama3", "factor": shortest(factor), "low_freq_factor": 1.0,
                    "high_freq_factor": float(high), "original_max_position_embeddings": round(length)}
    raise Refusal("the tensor rope_freqs.weight holds no factors of Llama 3's rotation", "those of Llama 3.1 or 3.2")


def rotation(model, width):
    rope = {"rope_theta": model.own("rope.freq_base", 10000.0, float), "rope_type": "default"}
    kind = model.own("rope.scaling.type", "linear", str)  # llama.cpp's default, of no effect without a factor
    factor = model.own("rope.scaling.factor", 0.0, float) or model.own("rope.scale_linear", 0.0, float)
    length = model.own("rope.scaling.original_context_length", None)
    betas = [model.own(f"rope.scaling.yarn_beta_{key}", value, float) for key, value in (("fast", 32.0), ("slow", 1.0))]
    if model.own("rope.scaling.attn_factor", 1.0, float) != 1:
        raise Refusal("the rotation has an attention factor of its own", "rope.scaling.attn_factor of 1")
    if factor and kind != "none":
        rope |= {"rope_type": kind, "factor": factor}  # unread kinds are refused with the settings
    if kind == "yarn":
        rope |= {"beta_fast": betas[0], "beta_slow": betas[1], "original_max_position_embeddings": length}
    if "rope_freqs.weight" in model.tensors:
        rope |= factors_of_llama3(model, rope["rope_theta"], width)
    rotated = model.own("rope.dimension_count", width)
    if rotated != width or model.arch == "phi3":
        rope["partial_rotary_factor"] = rotated / width
    return rope


def gemma_settings(model, config):
    own = model.own
    head = config["head_dim"]
    largest = {"gemma2": 46, "gemma3": 62}[model.arch]  # layers of 27B, whose queries llama.cpp scales by the width
    if config["num_hidden_layers"] == largest:
        head = config["hidden_size"] // config["num_attention_heads"]
    config |= {"hidden_activation": config.pop("hidden_act"), "query_pre_attn_scalar": head,
               "sliding_window": own("attention.sliding_window", 4096 if model.arch == "gemma2" else ...)}
    soft = [own(f"{key}_logit_softcapping", value if model.arch == "gemma2" else 0.0, float) or None
            for key, value in (("attn", 50.0), ("final", 30.0))]
    config |= {"attn_logit_softcapping": soft[0], "final_logit_softcapping": soft[1]}
    if model.arch == "gemma3":
        local = {"rope_type": "default", "rope_theta": own("rope.freq_base_swa", 10000.0, float)}
        config |= {"sliding_window_pattern": own("attention.sliding_window_pattern", 6),
                   "rope_parameters": {"full_attention": config["rope_parameters"], "sliding_attention": local}}


def settings(model):
    """config.json without the ids of tokens."""
    own = model.own
    name, vocabulary = FAMILIES[model.arch], model.shape("token_embd.weight")[0]
    config = {"architectures": [f"{name}ForCausalLM" if name != "GPT2" else "GPT2LMHeadModel"],
              "model_type": "gemma3_text" if model.arch == "gemma3" else model.arch,
              "vocab_size": vocabulary, "tie_word_embeddings": model.tied}
    if model.value(f"{model.arch}.vocab_size", vocabulary) != vocabulary:
        raise Refusal(f"{model.arch}.vocab_size disagrees with token_embd.weight", f"{vocabulary} as its rows",
                      model.value(f"{model.arch}.vocab_size"))
    width, heads, positions = own("embedding_length"), own("attention.head_count"), own("context_length")
    layers, inner = own("block_count"), own("feed_forward_length")
    if min(width, heads, positions, layers, inner) < 1:
        raise Refusal("sizes of the model are no sizes", "numbers of at least 1", [width, heads, positions, layers])
    blocks = {name.split(".")[1] for name in model.tensors if name.startswith("blk.")}
    if len(blocks) != layers:
        raise Refusal(f"{model.arch}.block_count and the tensors disagree", f"{len(blocks)}, as blk.0 and on", layers)
    if model.arch == "gpt2":
        return config | {"n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": positions,
                         "n_inner": inner, "layer_norm_epsilon": own("attention.layer_norm_epsilon", kind=float)}
    config |= {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
               "num_attention_heads": heads, "num_key_value_heads": own("attention.head_count_kv", heads),
               "head_dim": own("attention.key_length", width // heads), "max_position_embeddings": positions,
               "rms_norm_eps": own("attention.layer_norm_rms_epsilon", kind=float), "hidden_act": "silu"}
    head = config["head_dim"]
    if model.value(f"{model.arch}.attention.value_length", head) != head:
        raise Refusal("keys and values have other widths", f"attention.value_length of {head}")
    config["rope_parameters"] = rotation(model, head)
    if "blk.0.attn_q.bias" in model.tensors and model.arch != "qwen2":
        config["attention_bias"] = True
    if "blk.0.ffn_up.bias" in model.tensors:
        config["mlp_bias"] = True
    if model.arch == "granite":
        names = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
                 "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
        config |= {theirs: own(key, kind=float) for key, theirs in names.items()}
    if model.arch == "smollm3":
        config["no_rope_layers"] = [int((layer + 1) % 4 != 0) for layer in range(layers)]
    if model.arch == "phi3":
        config |= {"original_max_position_embeddings": positions,
                   "sliding_window": own("attention.sliding_window", 0) or None}
    if model.arch.startswith("gemma"):
        config["hidden_act"] = "gelu_pytorch_tanh"
        gemma_settings(model, config)
    return config


SIXTEEN = {Type.F16: "F16", Type.BF16: "BF16"}


def named(model, name):
    """Transformers' name of a tensor; nothing for one that is a part of the settings."""
    gpt2 = model.arch == "gpt2"
    stem, _, kind = name.rpartition(".")
    layers = GPT2_LAYERS if gpt2 else LAYERS
    if model.arch == "olmo2" or model.arch.startswith("gemma"):
        layers = layers | NORMS_BEHIND
    if model.arch.startswith("gemma"):
        layers = layers | {"ffn_norm": "pre_feedforward_layernorm"}
    if model.arch == "phi3":
        layers = layers | {"ffn_up": "mlp.gate_up_proj"}
    if stem.startswith("blk.") and stem.count(".") == 2 and stem.split(".")[2] in layers:
        block, part = stem.split(".")[1:]
        return f"{'transformer.h' if gpt2 else 'model.layers'}.{block}.{layers[part]}.{kind}"
    outside = GPT2_OUTSIDE if gpt2 else OUTSIDE
    if stem in outside:
        return f"{outside[stem]}.{kind}"
    if name == "rope_freqs.weight" and not gpt2:
        return None
    raise Refusal(f"the tensor {name} is not read", f"tensors of a {FAMILIES[model.arch]}")


class Weights:
    """The file of weights. Each number is stored as it is: 16 bits where those hold it, fp32 otherwise."""

    def __init__(self, model, config):
        self.model, self.config = model, config
        self.tensors = [tensor for name, tensor in model.tensors.items()
                        if named(model, name) and not (model.tied and name == "output.weight")]
        matrices = {tensor.tensor_type for tensor in self.tensors if len(tensor.shape) > 1}
        self.narrow = SIXTEEN[next(iter(matrices))] if len(matrices) == 1 and matrices <= set(SIXTEEN) else "F32"
        for kind in matrices - {Type.F32, *SIXTEEN}:
            try:
                gguf.quants.dequantize(numpy.zeros(gguf.GGML_QUANT_SIZES[kind][1], numpy.uint8), kind)
            except Exception:
                raise Refusal(f"tensors of type {kind.name} cannot be read", "types that the package gguf reads") \
                    from None

    def numbers(self, tensor):
        """A tensor in fp32, as Transformers orders it."""
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part, heads = tensor.name.split(".")[-2], self.config.get("num_attention_heads")
        if part == "attn_k":
            heads = self.config["num_key_value_heads"]
        if self.model.arch in PAIRED and part in ("attn_q", "attn_k"):
            if len(values) % (2 * heads):
                raise Refusal(f"the tensor {tensor.name} does not fit the model", f"rows of {heads} heads", len(values))
            values = values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if self.model.arch.startswith("gemma") and tensor.name.endswith("norm.weight"):
            values = values - 1
        if self.model.arch == "gpt2" and tensor.name.startswith("blk.") and values.ndim == 2:
            values = values.T  # Conv1D
        if not numpy.isfinite(values).all():
            raise Refusal(f"the tensor {tensor.name} holds NaN or infinity", "finite numbers")
        return values

    def stored(self, values, dtype):
        """The bytes of numbers in a type; nothing if it does not hold them."""
        values = numpy.ascontiguousarray(values, numpy.float32)
        if dtype == "F32":
            return values
        bits = values.view(numpy.uint32)
        with numpy.errstate(over="ignore"):
            half = values.astype(numpy.float16) if dtype == "F16" else (bits >> 16).astype(numpy.uint16)
        exact = numpy.array_equal(half, values) if dtype == "F16" else not (bits & 0xFFFF).any()
        return half if exact else None

    def begin(self, file):
        """Writes the header, and zeros for all numbers. Answers the number of tensors."""
        header, place, self.places = {"__metadata__": {"format": "pt"}}, 0, []
        for tensor in self.tensors:
            dtype = SIXTEEN.get(tensor.tensor_type, self.narrow)
            changed = self.model.arch.startswith("gemma") and tensor.name.endswith("norm.weight")
            if dtype != "F32" and (changed or tensor.tensor_type not in SIXTEEN):
                dtype = dtype if self.stored(self.numbers(tensor), dtype) is not None else "F32"
            shape = self.model.shape(tensor.name)
            if self.model.arch == "gpt2" and tensor.name.startswith("blk."):
                shape = shape[::-1]
            end = place + math.prod(shape) * (4 if dtype == "F32" else 2)
            header[named(self.model, tensor.name)] = {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}
            self.places.append((place, dtype))
            place = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.file, self.start = open(file, "w+b"), 8 + len(text)
        self.file.write(struct.pack("<Q", len(text)) + text)
        self.file.flush()
        if place:
            os.posix_fallocate(self.file.fileno(), self.start, place)  # a full disk shows before the work
        return len(self.tensors)

    def fill(self, number):
        place, dtype = self.places[number]
        self.file.seek(self.start + place)
        self.file.write(self.stored(self.numbers(self.tensors[number]), dtype).data)
        if number + 1 == len(self.tensors):
            self.file.flush()
            os.fsync(self.file.fileno())  # before the directory gets its name
            self.file.close()
        return number


def begin(file, directory):
    model = Model(file)
    write = lambda name, value: (directory / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    config = settings(model)
    model.refuse_others()
    weights = Weights(model, config)
    config["dtype"] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[weights.narrow]
    tokens = None
    kind = model.value("tokenizer.ggml.model", kind=str)
    if kind not in ("gpt2", "llama", "t5", "no_vocab", "none"):
        raise Refusal("the tokenizer's kind is not read", "tokenizer.ggml.model of gpt2, llama, t5 or no_vocab", kind)
    if kind in ("gpt2", "llama", "t5"):
        tokens = Tokens(model, config["vocab_size"])
        ends = [*dict.fromkeys(tokens.ids[role] for role in ("eos", "eot", "eom") if tokens.ids[role] is not None)]
        ids = {"bos_token_id": tokens.ids["bos"], "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
               "pad_token_id": tokens.ids["padding"]}
        config |= ids
        write("generation_config.json", {key: value for key, value in ids.items() if value is not None})
        write("tokenizer_config.json", tokens.settings(model.value("tokenizer.chat_template", None)))
        if kind != "t5":
            write("tokenizer.json", tokens.json())
        if kind != "gpt2":
            (directory / "tokenizer.model").write_bytes(tokens.sentencepiece())
    write("config.json", config)
    return weights, weights.begin(directory / "model.safetensors")


def main():
    weights = None

    def first(request):
        nonlocal weights
        weights, count = begin(request["file"], Path(request["directory"]))
        return count

    for line in sys.stdin.buffer:
        request = json.loads(line)
        limited(lambda: first(request) if weights is None else weights.fill(request["tensor"]),
                "it is no GGUF file that can be read")


main()
