"""The Llama shape of bench/compare_decoding, for compare_decoding_peer.py: a random-weight Llama in Hugging Face's and
llama.cpp's formats, and greedy decoding by llama.cpp."""

import ctypes

VOCABULARY = 32000
BOS, EOS = 1, 2
FORMATS = ("F32", "F16", "BF16", "Q8_0")
# llama.cpp's names of a layer's weights; norms stay in fp32.
LAYER_WEIGHTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OTHER_WEIGHTS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def make(folder, layers, width, heads, ff_width):
    import torch
    import transformers
    torch.manual_seed(17)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=ff_width, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=2048, rms_norm_eps=1e-5,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=0, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(f"{folder}/hf", safe_serialization=True)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    for name in FORMATS:
        write_gguf(f"{folder}/{name}.gguf", name, config, weights)


def interleaved(weight, heads):
    """The rows of a query's or key's projection in the order of llama.cpp's rotation: pairs side by side within a head,
    where Transformers has a head's first halves before its second ones."""
    outputs, inputs = weight.shape
    return weight.reshape(heads, 2, outputs // heads // 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)


def write_gguf(path, file_format, config, weights):
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random weights")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    for name, stored in stored_names(config.num_hidden_layers).items():
        weight = weights[f"{name}.weight"]
        if name.endswith(("q_proj", "k_proj")):
            weight = interleaved(weight, config.num_attention_heads)
        quantization = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else file_format]
        data = gguf.quants.quantize(weight, quantization)
        writer.add_tensor(f"{stored}.weight", data, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_names(layers):
    names = dict(OTHER_WEIGHTS)
    for layer in range(layers):
        names |= {f"model.layers.{layer}.{name}": f"blk.{layer}.{stored}" for name, stored in LAYER_WEIGHTS.items()}
    return names


def generate(folder, file_format, new_tokens, threads):
    """Returns a function from a prompt's ids to those of its output, by llama.cpp's own interface of C: the wrappers of
    Python copy logits and cost time. The most likely token is NumPy's, which is faster than llama.cpp's samplers."""
    import llama_cpp
    import numpy

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
        logits = numpy.frombuffer((ctypes.c_float * VOCABULARY).from_address(address), dtype=numpy.float32)
        logits[EOS] = -numpy.inf
        return int(logits.argmax())

    def generate_one(prompt):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        ids = [next_token((llama_cpp.llama_token * len(prompt))(*prompt))]
        while len(ids) < new_tokens:
            ids.append(next_token((llama_cpp.llama_token * 1)(ids[-1])))
        return ids
    # The callback must live as long as the library calls it.
    generate_one.quiet = quiet
    return generate_one
