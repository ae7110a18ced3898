#!/usr/bin/env python3
"""References for tests/parity/chat_parity_test.cpp: the text that Transformers' apply_chat_template makes of conversations.

parity_chat.py make DIR   writes DIR/cases.json: template, special tokens, messages, with or without the beginning of an
                          answer, and the text (null where the template refuses the messages)
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

# Styles of templates in use, written anew: what matters is the text that they make.
STYLES = {
    "chatml": """{% for turn in messages %}
{{- '<|im_start|>' + turn['role'] + '\\n' + turn['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "chatml_default_system": """{%- if messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}{%- set rest = messages[1:] -%}
{%- else -%}
{%- set system = 'You help.' -%}{%- set rest = messages -%}
{%- endif -%}
<|im_start|>system
{{ system }}<|im_end|>
{% for turn in rest %}
<|im_start|>{{ turn.role }}
{{ turn.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "llama3": """{% set loop_messages = messages %}
{%- for message in loop_messages %}
    {%- set text = '<|start_header_id|>' ~ message['role'] ~ '<|end_header_id|>\\n\\n' ~ message['content'] | trim ~ '<|eot_id|>' %}
    {%- if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}
    {{- text }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "llama31": """{{- bos_token }}
{%- if tools is not none and tools is defined and tools %}{{- raise_exception('no tools here') }}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- else %}
        {{- raise_exception("tools: " + message | tojson) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "instruct": """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant') }}
{%- endif %}
{%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}
{%- else %}{{ raise_exception('Only user and assistant roles are known') }}{% endif %}
{%- endfor %}""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}
{%- for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "thoughts": """{%- set ns = namespace(last=-1, found=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.found and message.role == "user" %}{%- set ns.found = true %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if '</think>' in content and loop.index0 < ns.last %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}""",
    "generation": """{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}{{ eos_token }}
{% endgeneration %}{% else %}{{ m.role[0]|upper }}:{{ m.content }}
{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}""",
}

# Rules of white space, operators, filters and methods.
PIECES = [
    "  {% if true %}\n  a\n  {% endif %}\nb {% if false %}x{% endif %}\n",
    "a\n  {%+ if true %}b{% endif +%}\n c\n{#- gone -#}\n d\n  {# line #}\n e {#+ x #} f",
    "{{- '  x ' -}}   \n y {{ '\\u00e4\\x41\\t\\\"' }}\n\n",
    "{%- set x = [1, 2.5, 'z', none, true] %}{{ x|tojson }} {{ x[1] }} {{ x[-2] }} {{ x|length }} {{ x[1:3]|tojson }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 1 + 2 * 3 - 4 }} {{ 1.0 }} {{ 3 * 1.5 }}",
    "{{ 'aBc dE'|upper }} {{ 'aBc dE'.title() }} {{ 'aBc'|capitalize }} {{ ' x '|trim }}| {{ 'a,b,,c'.split(',')|join('-') }}",
    "{{ ' a  b '.split()|tojson }} {{ 'xaxbx'.replace('x', 'y') }} {{ 'xxaxx'.strip('x') }} {{ 'abc'[::-1] }} {{ 'h\u00e4\u00df'[1] }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }} {{ 'b' in 'abc' }} {{ 'z' not in ['a'] }} {{ not 1 == 2 }}",
    "{{ nothing|default('d') }} {{ ''|default('e', true) }} {{ nothing is defined }} {{ nothing is not defined }} {{ none is none }}",
    "{% for a, b in {'k': 1, 'l': [2]}.items() %}{{ a }}={{ b|tojson }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for i in range(1, 10, 3) %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
    "{% for i in range(6) if i is odd %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{{ loop.previtem is defined }}{% continue %}x{% endfor %}",
    "{% set text %}one\n  two{% endset %}[{{ text }}]{% set n = namespace(a=1) %}{% for i in [1,2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
    "{{ {'b': 1, 'a': {'c': [true, none, '\u00e4\"']}}|tojson }} {{ {'b': [1, {}], 'a': []}|tojson(indent=2) }}",
    "{{ 'a' ~ 1 ~ none ~ true }} {{ (1, 2)|last }} {{ [3, 4]|first }} {{ 'x' if false }} {{ 'yes' if 1 < 2 <= 2 or false else 'no' }}",
    "{{ messages[0].role|upper }} {{ messages[0].get('name', 'nobody') }} {{ messages[-1]['content']|length }} {{ messages|map_not|d }}",
    "{{ '5'|int + 1 }} {{ 'ab'|list|tojson }} {{ [1,2]|reverse|list|tojson }} {{ 'x'|string }} {{ 3 is number }} {{ 'x' is iterable }}",
    "{{ [1] + [2] }} not printable",
]

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


def make(folder):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    generator = random.Random(1)
    cases = []
    for template in [*STYLES.values(), *PIECES]:
        for messages in conversations(generator) if template in STYLES.values() else [[{"role": "user", "content": "Hi"}]]:
            for with_prompt in (False, True):
                case = {"template": template, "tokens": TOKENS, "messages": messages, "prompt": with_prompt}
                try:
                    case["text"] = tokenizer.apply_chat_template(
                        messages, chat_template=template, tokenize=False, add_generation_prompt=with_prompt)
                except Exception as error:  # Jinja's errors, and those that templates raise
                    case["text"], case["error"] = None, str(error)
                cases.append(case)
    (Path(folder) / "cases.json").write_text(json.dumps(cases, ensure_ascii=False), encoding="utf-8")
    (Path(folder) / "styles.json").write_text(json.dumps(STYLES, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] != "make":
        sys.exit(__doc__)
    make(sys.argv[2])
