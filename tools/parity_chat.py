#!/usr/bin/env python3
"""References for tests/parity/chat_parity_test.cpp: the text that Transformers' apply_chat_template makes of conversations.

parity_chat.py make DIR   writes DIR/cases.json: template, special tokens, a conversation (messages, perhaps tools and
                          documents), with or without the beginning of an answer, and the text (null where the
                          template refuses the conversation)
"""

import json
import random

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from parity_models import run

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
    "chatml_tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\nYou may call functions, described within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",
    "llama31_tools": """{{- bos_token }}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%Y") %}{%- else %}{%- set date_string = "2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if loop.first and tools_in_user_message and not tools is none %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\nGiven the following functions:\\n\\n' }}
        {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {%- endif %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}{{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "mistral_tools": """{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}{{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}{%- endif %}
{%- endfor %}
""",
    "command": """{{ bos_token }}{%- macro turn(role, text) -%}<|START_OF_TURN_TOKEN|><|{{ role|upper }}_TOKEN|>{{ text }}<|END_OF_TURN_TOKEN|>{%- endmacro -%}
{%- for message in messages if message.content is defined %}{{ turn(message.role, message.content) }}{% endfor %}
{%- if documents %}{{ '<|SYSTEM_TOKEN|><results>' }}
{% for document in documents %}{{ '\\nDocument: ' }}{{ loop.index0 }}
{% for key, value in document.items() %}{{ key }}: {{value}}
{% endfor %}{% endfor %}{{ '</results>' }}{% endif %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}""",
    "granite": """{%- set system = messages[0].content if messages[0].role == 'system' else 'You are useful.' -%}
{%- if tools and documents %}{%- set system = system + ' Use tools and documents.' %}{%- elif documents %}{%- set system = system + ' Use the documents.' %}{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system + '<|end_of_text|>\\n' }}
{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}{%- endif %}
{%- for document in documents or [] %}
{{- '<|start_of_role|>document ' + ({'document_id': loop.index} | tojson) + '<|end_of_role|>' + document.text | default(document.title, true) + '<|end_of_text|>\\n' }}
{%- endfor %}
{%- for message in messages | rejectattr('role', 'eq', 'system') %}
{{- '<|start_of_role|>' ~ message.role ~ '<|end_of_role|>' ~ (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{- '<|tool_call|>' ~ ({'name': call.function.name, 'arguments': call.function.arguments} | tojson(separators=(',', ':'), sort_keys=true)) }}{%- endfor %}
{{- '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}""",
    "typed_tools": """{%- macro kind(schema) -%}
{%- if schema.type == 'array' %}{{ kind(schema['items']) }}[]{%- elif schema.enum is defined %}{{ schema.enum | map('tojson') | join(' | ') }}
{%- elif schema.type == 'object' %}{ {% for name, part in schema.properties | dictsort %}{{ name }}{{ '' if name in (schema.required or []) else '?' }}: {{ kind(part) }}{{ ', ' if not loop.last }}{% endfor %} }
{%- else %}{{ schema.type | replace('integer', 'number') }}{%- endif %}
{%- endmacro %}
{%- if tools %}namespace functions {
{% for tool in tools %}
{% set f = tool.function %}// {{ f.description | default('no description') | indent(3) }}
type {{ f.name }} = (_: {{ kind(f.parameters) }}) => any;
{% endfor %}
} // namespace functions
{% endif %}
{%- for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>{{ m.role }}{% endif %}
{%- for call in m.tool_calls or [] %} to=functions.{{ call.function.name }}<|message|>{{ call.function.arguments | tojson }}<|call|>{% else %}<|message|>{{ m.content }}<|end|>{% endfor %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}""",
    "reasoning": """{%- set ns = namespace(is_first=false, is_tool=false, system_prompt='') -%}
{%- for message in messages %}{%- if message['role'] == 'system' %}{%- set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}
{{- bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' + message['content']}}{%- endif %}
    {%- if message['role'] == 'assistant' and message.tool_calls %}
        {%- set ns.is_first = false %}
        {%- for tool in message['tool_calls']%}
            {%- if not ns.is_first %}{{'<|Assistant|><|calls|>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```'}}{%- set ns.is_first = true -%}
            {%- else %}{{'\\n' + tool['function']['name'] + '\\n' + tool['function']['arguments']|tojson}}{%- endif %}
        {%- endfor %}{{ eos_token }}
    {%- elif message['role'] == 'assistant' %}
        {%- if message.reasoning_content and loop.last %}{{ '<think>' ~ message.reasoning_content.strip('\\n') ~ '</think>' }}{%- endif %}
        {%- set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
        {{- '<|Assistant|>' + content + eos_token}}
    {%- elif message['role'] == 'tool' %}{{ ('' if ns.is_tool else '<|outputs|>') ~ '<|output|>' ~ message['content'] }}{%- set ns.is_tool = true %}{%- endif %}
{%- endfor -%}
{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|>'}}{% endif %}""",
    "vicuna": """{% set sep = [' ', eos_token] %}{% for message in messages %}{% if message.role == 'system' %}{{ message.content + ' ' }}
{%- elif message.role == 'user' %}USER: {{ message.content + sep[0] }}{% else %}ASSISTANT: {{ message.content ~ sep[1] }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}""",
    "alpaca": """{% for message in messages %}{% if message['role'] == 'user' %}
### Instruction:
{{ message['content']|trim -}}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}
{% elif message['role'] == 'assistant' %}
### Response:
{{ message['content']|trim -}}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}
{% endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}
### Response:
{% endif %}""",
    "openchat": """{{ bos_token }}{% for message in messages %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + message['content'] + '<|end_of_turn|>'}}{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}""",
    "phi": """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}""",
    "parts": """{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content or [] %}{{ part.text if part.type == 'text' else '<' ~ part.type ~ '>' }}{% endfor %}{% endif %}
{% filter upper %}{{ m.name or '' }}{% endfilter %}{{ '%-8s|%s' | format(m.role, loop.cycle('a', 'b')) }}
{% endfor %}{% with last = messages | last %}{{ last.role }}{% endwith %}{{ documents | map(attribute='title') | join('; ') if documents }}""",
}

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
    for template in [*STYLES.values(), *PIECES]:
        asked = [{"messages": [{"role": "user", "content": "Hi"}]}]
        if template in STYLES.values():
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
