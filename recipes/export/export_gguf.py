"""Writes a GGUF file of a model; export_model.cpp starts it behind base/python_script.py, gguf_shared.py and
gguf_tokenizer.py of recipes/import, and gguf_tokens.py.

The first line has "family", "settings" (keys of config.json), "window", "rotation" (factors of Llama 3's scaled
rotation), "type", "name", "description" and "tokenizer". It is checked, and answered by {"text": true}. The second has
"weights", a safetensors file with Transformers' names, and "file", which is written. Other answers: {"error": {what,
expected, found, hint}}, and {"missing"} for a module.
"""

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "granite": "granite", "smollm3": "smollm3", "qwen2": "qwen2",
                 "qwen3": "qwen3", "olmo2": "olmo2", "phi3": "phi3", "gpt2": "gpt2"}
WITH_BIASES = ("llama", "granite", "gpt2")  # families whose output projection and feed-forward layers may have them


def check(request):
    """Refuses what llama.cpp's models lack."""
    family, config, rope = request["family"], request["settings"], request["settings"].get("rope_parameters", {})
    if family not in ARCHITECTURES:
        raise Refusal("models of this family are not exported", f"a model of {', '.join(ARCHITECTURES)}", family,
                      FOR_TRANSFORMERS)
    wrong = []  # what llama.cpp's model has, what is wanted of this one, what it is

    def refuse(*problem):
        wrong.append(problem)

    usual = "gelu_new" if family == "gpt2" else "silu"
    activation = config.get("activation_function" if family == "gpt2" else "hidden_act")
    if activation != usual:
        refuse("one activation", usual, activation)
    biases = [key for key in ("attention_bias", "mlp_bias") if config.get(key)]
    if biases and family not in WITH_BIASES:
        refuse("no biases behind attention or in feed-forward layers", '"attention_bias": false and "mlp_bias": false',
               " and ".join(biases))
    if request["window"]:
        refuse("no windows of attention", f'"max_position_embeddings": {request["window"]} at most, which the window '
               "does not cut", f"a window of {request['window']}")
    if family == "phi3" and config["num_attention_heads"] * config["head_dim"] != config["hidden_size"]:
        refuse("heads that make up the width", f"a head_dim of {config['hidden_size']} / "
               f"{config['num_attention_heads']}", config["head_dim"])
    kind = rope.get("rope_type", "default")
    if kind == "dynamic" or kind == "llama3" and ARCHITECTURES[family] != "llama":
        refuse("rotation that is not scaled in this way", "rope_type default, linear or yarn", kind)
    if kind == "yarn":
        stretch = 0.1 * math.log(rope["factor"]) + 1.0
        if abs(rope.get("attention_factor", stretch) - stretch) > 1e-6:
            refuse("its own attention factor of YaRN", f"attention_factor {stretch} in rope_parameters",
                   rope["attention_factor"])
        if not rope.get("truncate", True):
            refuse("ramps of YaRN between whole pairs alone", '"truncate": true in rope_parameters', "false")
    layers = config.get("num_hidden_layers", 0)
    if family == "smollm3" and config["no_rope_layers"] != [int(layer % 4 != 3) for layer in range(layers)]:
        refuse("rotation in all layers but each fourth", '"no_rope_layer_interval": 4', "other no_rope_layers")
    if wrong:
        has, expected, found = ("; ".join(map(str, texts)) for texts in zip(*wrong))
        raise Refusal(f"llama.cpp's model of this family has {has}", expected, found, FOR_TRANSFORMERS)


def describe(writer, arch, request):
    """Writes the keys of the model."""
    config, rope, kind = request["settings"], request["settings"].get("rope_parameters", {}), request["type"]
    writer.add_name(request["name"])
    writer.add_file_type(gguf.LlamaFileType[("ALL_" if kind == "F32" else "MOSTLY_") + kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)

    def number(key, value):
        writer.add_uint32(f"{arch}.{key}", value)

    def decimal(key, value):
        writer.add_float32(f"{arch}.{key}", value)

    get = lambda *names: next(config[name] for name in names if name in config)
    heads = get("num_attention_heads", "n_head")
    for key, value in (("context_length", get("max_position_embeddings", "n_positions")),
                       ("embedding_length", get("hidden_size", "n_embd")),
                       ("block_count", get("num_hidden_layers", "n_layer")),
                       ("feed_forward_length", get("intermediate_size", "n_inner")),
                       ("vocab_size", get("vocab_size")), ("attention.head_count", heads)):
        number(key, value)
    if arch == "gpt2":
        return decimal("attention.layer_norm_epsilon", config["layer_norm_epsilon"])
    number("attention.head_count_kv", config["num_key_value_heads"])
    for key in ("key", "value"):
        number(f"attention.{key}_length", config["head_dim"])
    decimal("attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    number("rope.dimension_count", round(config["head_dim"] * rope.get("partial_rotary_factor", 1)))
    decimal("rope.freq_base", rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_string(f"{arch}.rope.scaling.type", rope["rope_type"])
        decimal("rope.scaling.factor", rope["factor"])
    if rope["rope_type"] == "yarn":
        number("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
        for speed in ("fast", "slow"):
            decimal(f"rope.scaling.yarn_beta_{speed}", rope[f"beta_{speed}"])
    if arch == "phi3":
        number("rope.scaling.original_context_length", config["max_position_embeddings"])
        number("attention.sliding_window", 0)  # none
    if arch == "granite":
        for key, name in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                          ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            decimal(key, config[name])


def begun(request):
    """Checks a model, and returns the writer of its file, with all keys."""
    check(request)
    arch, tokenizer = ARCHITECTURES[request["family"]], request["tokenizer"]
    writer = gguf.GGUFWriter(None, arch)
    describe(writer, arch, request)
    writer.add_description(request["description"])
    for key, value in tokenizer_keys(tokenizer, request["settings"]["vocab_size"]).items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}.get(type(value), writer.add_array)
        add(f"tokenizer.ggml.{key}", value)
    if tokenizer and tokenizer["chat_template"]:
        writer.add_chat_template(tokenizer["chat_template"])
    return writer


class Weights:
    """The tensors of a safetensors file, by llama.cpp's names."""

    def __init__(self, file, request):
        self.request, self.arch, config = request, ARCHITECTURES[request["family"]], request["settings"]
        self.heads = {"attn_q": config.get("num_attention_heads"), "attn_k": config.get("num_key_value_heads")}
        layers = config.get("num_hidden_layers", config.get("n_layer"))
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[self.arch.upper()], layers)
        with open(file, "rb") as opened:
            size = struct.unpack("<Q", opened.read(8))[0]
            header = json.loads(opened.read(size))
        self.bytes, self.places = numpy.memmap(file, mode="r", offset=8 + size), {}
        for name, place in header.items():
            if name != "__metadata__":
                self.places[names.get_name(name, (".weight", ".bias"))] = (name, place)
        if self.arch == "olmo2":
            self.places.setdefault("output.weight", self.places["token_embd.weight"])  # llama.cpp asks for it

    def kind(self, name, shape):
        if len(shape) < 2 or name == "position_embd.weight":
            return Type.F32
        return Type.F16 if self.request["type"] == "Q8_0" and shape[-1] % 32 else Type[self.request["type"]]

    def numbers(self, name):
        """A tensor in fp32, as llama.cpp orders it."""
        stored, place = self.places[name]
        dtype = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[place["dtype"]]
        data = self.bytes[slice(*place["data_offsets"])].view(dtype)
        values = (data.astype("<u4") << 16).view("<f4") if dtype == "<u2" else data.astype("<f4")
        values, heads = values.reshape(place["shape"]), self.heads.get(name.split(".")[-2])
        if self.arch == "gpt2" and stored.startswith("transformer.h.") and values.ndim == 2:
            values = values.T  # Conv1D
        if self.arch in PAIRED and heads:  # pairs of the halves of each head's rows
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        return numpy.ascontiguousarray(values)

    def write(self, writer, file):
        kinds, rotation = {}, self.request["rotation"]
        for name, (stored, place) in self.places.items():
            shape = place["shape"]
            if self.arch == "gpt2" and stored.startswith("transformer.h."):
                shape = shape[::-1]
            kinds[name] = self.kind(name, shape)
            block, size = gguf.GGML_QUANT_SIZES[kinds[name]]
            writer.add_tensor_info(name, shape, numpy.float32, math.prod(shape) // block * size, kinds[name])
        if rotation:
            writer.add_tensor_info("rope_freqs.weight", [len(rotation)], numpy.float32, 4 * len(rotation))
        writer.write_header_to_file(Path(file))
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, kind in kinds.items():
            writer.write_tensor_data(gguf.quants.quantize(self.numbers(name), kind))
        if rotation:
            writer.write_tensor_data(numpy.array(rotation, numpy.float32))
        writer.close()


def main():
    request = json.loads(sys.stdin.buffer.readline())
    writer = None

    def begin():
        nonlocal writer
        writer = begun(request)
        return True

    def finish():
        files = json.loads(sys.stdin.buffer.readline())
        Weights(files["weights"], request).write(writer, files["file"])
        return True

    for step in (begin, finish):
        limited(step, "its settings, tokenizer or weights have an unknown form")


main()
