#!/usr/bin/env python3
"""References for tests/parity/chat_parity_test.cpp: the text that Transformers' apply_chat_template makes of conversations.

parity_chat.py make DIR   writes DIR/cases.json: template, special tokens, a conversation (messages, perhaps tools and
                          documents), with or without the beginning of an answer, and the text (null where the
                          template refuses the conversation)
"""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from parity_models import run

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

# Styles of templates in use, written anew: what matters is the text that they make. The order decides conversations.
TEMPLATES = Path(__file__).resolve().parents[1] / "tests/parity/chat_templates"
STYLES = [(TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8") for name in (
    "chatml", "chatml_default_system", "llama3", "zephyr", "instruct", "gemma", "thoughts", "generation",
    "chatml_tools", "llama31_tools", "mistral_tools", "command", "granite", "typed_tools", "reasoning", "vicuna",
    "alpaca", "openchat", "phi", "parts")]

# What chat templates get beyond plain Jinja: white space, loop controls, tojson, generation blocks, the sandbox.
PIECES = [
    "  {% if true %}\n  a\n  {% endif %}\nb {% if false %}x{% endif %}\n",
    "a\n  {%+ if true %}b{% endif +%}\n c\n{#- gone -#}\n d\n  {# line #}\n e {#+ x #} f",
    "{% for i in range(6) if i is odd %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% continue %}x{% endfor %}",
    "{{ {'b': 1, 'a': {'c': [true, none, '\u00e4\"']}}|tojson }} {{ {'b': [1, {}], 'a': []}|tojson(indent=2) }}",
    "{{ messages[0].role|upper }} {{ messages[0].get('name', 'nobody') }} {{ messages|map_not|d }}",
    "{{ 2 is prime }}",
    "{{ ''.__class__ }}",
    "{{ messages.append(1) }}",
    "{{ {'a': [1, {'b': 2}]}|tojson(indent=2, separators=(',', ':'), sort_keys=true, ensure_ascii=true) }} {{ '\u2028<>&'|tojson }}",
    "{%- generation -%} {{ bos_token }}{% set inner = 1 %}\n{% endgeneration %} {{ inner is defined }} {{ pad_token is defined }}\n",
]

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather\nof a \"city\" <now> & here",
     "parameters": {"type": "object", "required": ["city"], "properties": {
         "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string", "enum": ["\u00b0C", "\u00b0F"]}}}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
        "numbers": {"type": "array", "items": {"type": "number", "minimum": -1.5e-7, "maximum": 1e22}}}}}},
]
DOCUMENTS = [{"title": "Caf\u00e9", "text": "It opens at 8."}, {"title": "Untitled", "text": "", "pages": 3}]

WORDS = ["hello", "W\u00f6rter", "  spaced ", "line\nbreak", "{{ not a tag }}", "<|im_end|>", "\u6f22\u5b57", "'quoted'", "",
         "\u00a0nbsp\u00a0", "tab\t", "</think>after", "1.5", "\U0001f600"]


def conversations(generator):
    """Conversations with and without a system message, of one to five messages."""
    def text():
        return " ".join(generator.choice(WORDS) for _ in range(generator.randint(1, 4)))
    result = []
    for length in (1, 2, 3, 4, 5) * 3:
        messages = [{"role": ("user", "assistant")[i % 2], "content": text()} for i in range(length)]
        if generator.random() < 0.5:
            messages.insert(0, {"role": "system", "content": text()})
        result.append(messages)
    result.append([{"role": "assistant", "content": "first"}])
    return result


def with_tools():
    """Conversations with tools, calls and their results, documents and thoughts."""
    def call(name, arguments):
        return {"type": "function", "id": "abcdefgh1", "function": {"name": name, "arguments": arguments}}
    asked = {"role": "user", "content": "What is the weather?"}
    calls = {"role": "assistant", "content": None, "tool_calls": [call("weather", {"city": "K\u00f6ln", "days": 2})]}
    result = {"role": "tool", "name": "weather", "tool_call_id": "abcdefgh1", "content": "{\"sky\": \"blue\"}"}
    two = {"role": "assistant", "content": "Let me see.",
           "tool_calls": [call("add", {"numbers": [1, 2.0, 1e-7]}), call("weather", {})]}
    thought = {"role": "assistant", "content": "Sunny.", "reasoning": "\nblue means sunny\n"}
    return [
        {"messages": [asked], "tools": TOOLS},
        {"messages": [asked, calls, result, thought], "tools": TOOLS},
        {"messages": [{"role": "system", "content": "Be brief."}, asked, two, result, result], "tools": TOOLS[::-1]},
        {"messages": [asked, thought, asked], "documents": DOCUMENTS},
        {"messages": [asked, calls, result], "tools": TOOLS[:1], "documents": DOCUMENTS},
        {"messages": [asked, {**thought, "thinking": "first", "reasoning_content": None}], "documents": []},
    ]


def make(root):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    generator = random.Random(1)
    cases = []
    for template in [*STYLES, *PIECES]:
        asked = [{"messages": [{"role": "user", "content": "Hi"}]}]
        if template in STYLES:
            asked = [{"messages": messages} for messages in conversations(generator)] + with_tools()
        for conversation in asked:
            for with_prompt in (False, True):
                case = {"template": template, "tokens": TOKENS, "conversation": conversation, "prompt": with_prompt}
                try:
                    case["text"] = tokenizer.apply_chat_template(
                        conversation["messages"], tools=conversation.get("tools"),
                        documents=conversation.get("documents"), chat_template=template, tokenize=False,
                        add_generation_prompt=with_prompt)
                except Exception as error:  # Jinja's errors, and those that templates raise
                    case["text"], case["error"] = None, str(error)
                cases.append(case)
    (root / "cases.json").write_text(json.dumps(cases, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    run(make)
