"""Renders conversations by a chat template, as Transformers' apply_chat_template does; chat_template.cpp starts it
behind base/python_script.py.

Reads {"template", "tokens", "seconds"}, then a line each conversation: {"messages", "add_generation_prompt"}, and
perhaps "tools" and "documents". Answers each line by one: {"text"}, {"error": {"what", "line"}}, or {"missing"} for a
module.
"""

import json
import resource
import signal
import sys
from datetime import datetime

MEMORY = 2 << 30  # bytes
REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one field

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
    answer({"missing": str(error)})
    sys.exit()


class Generation(jinja2.ext.Extension):
    """The statement {% generation %}, which marks the assistant's words and changes no text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


class Dict:
    """The function dict(), without the attributes of Python's class."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    """Jinja's namespace(), without names that begin with an underscore."""

    def __init__(*args, **kwargs):
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name!r}")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(f"it refuses these messages: {message}")


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def compiled(text):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=raise_exception, dict=Dict(), namespace=Namespace,
                               strftime_now=lambda format: datetime.now().strftime(format))
    return environment.from_string(text)


def prepared(message):
    """A message without fields that are null, and with its reasoning under the names that templates read."""
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[key] for key in REASONING if key in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def rendered(template, tokens, request):
    request = {"tools": None, "documents": None, **request}
    request["messages"] = [prepared(message) for message in request["messages"]]
    text = template.render(**{**tokens, **request})
    text.encode()  # half a surrogate pair is an error
    return text


def problem(error):
    """What Jinja or Python say, and the template's line; 0 if it is unknown."""
    line = getattr(error, "lineno", None) or 0
    at = None if line else error.__traceback__
    while at:
        if at.tb_frame.f_code.co_filename in ("<template>", "<unknown>"):
            line = at.tb_lineno
        at = at.tb_next
    text = str(error) if isinstance(error, jinja2.exceptions.TemplateError) else f"{type(error).__name__}: {error}"
    return {"error": {"what": text[:1000].encode("utf-8", "replace").decode(), "line": line}}


def limited(seconds, action):
    """Answers by the action's result, or by the problem."""

    def too_long(*_):
        raise jinja2.exceptions.TemplateRuntimeError(f"it takes longer than {seconds:g} seconds")

    signal.signal(signal.SIGALRM, too_long)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            message = {"text": action()}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:  # whatever Jinja and the template's own operations raise
        message = problem(error)
    answer(message)


def main():
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard), hard))
    start = json.loads(sys.stdin.buffer.readline())
    template = None

    def compile_template():
        nonlocal template
        template = compiled(start["template"])
        return ""

    limited(start["seconds"], compile_template)
    for line in sys.stdin.buffer:
        limited(start["seconds"], lambda: rendered(template, start["tokens"], json.loads(line)))


main()
