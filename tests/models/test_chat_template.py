"""Chat templates: transformers' output to the character, and no way to hang or to break out."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest

from forerun.errors import TemplateError
from forerun.models.chat_template import ChatTemplate

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
LLAMA3 = """\
{{- bos_token }}
{% set loop_messages = messages %}
{% if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% endif %}
{{- system_message ~ "<|eot_id|>" }}
{%- for message in loop_messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- for call in message.tool_calls %}
            {%- for name, value in call.function.arguments | items %}
                {{- name + '="' + value ~ '"' }}{{ ", " if not loop.last }}
            {%- endfor %}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """\
{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages if message.role in ["user", "assistant"] %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate user/assistant.") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- else %}
        {%- continue %}
    {%- endif %}
{%- endfor %}
"""
GEMMA = """\
{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{% set first = \
messages[0]['content'] + '\\n\\n' %}{% set turns = messages[1:] %}{% else %}{% set first = '' %}\
{% set turns = messages %}{% endif %}
{% for message in turns %}
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}\
{% if message['content'] is string %}{{ message['content'] | trim }}\
{% elif message['content'] is iterable %}{% for part in message['content'] %}\
{% if part['type'] == 'text' %}{{ part['text'] | trim }}{% else %}<image>{% endif %}{% endfor %}\
{% endif %}{{ '<end_of_turn>\\n' }}
{% endfor %}
  {% if add_generation_prompt %}
{{ '<start_of_turn>model\\n' }}
  {% endif %}
"""
BRICKS = """\
{% macro part(x, sep='|') %}{{ x }}{{ sep }}{% endmacro %}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}
{% generation %}{% call wrap() %}{{ part('a') }}{% endcall %}{% endgeneration %}
{{ ['b', 'a'] | sort | join(', ') }} {{ 'x=%s' % 3 }} {{ '{:>4}'.format(7) }} {{ 7 // 2 ** 1 }}
{{ {'k': [1, none, true], 'é': '<&>'} | tojson }} {{ [1, 2] * 2 }} {{ 'ab' * 2 }} {{ -3 | abs }}
{{ 'A-b'.split('-')[::-1] | map('lower') | list }} {{ 'a b'.title().replace('A', 'aa') }}
{{ range(5) | select('even') | list }} {{ [3, 1] | max }} {{ ' x ' | trim | length }}
{{ messages | map(attribute='role') | unique | list }} {{ 'q' in 'quick' }}
{{ missing | default(1) }}
{% for a, b in {'x': 1, 'y': 2}.items() %}{{ loop.index }}{{ a }}{{ b }}{{ loop.cycle('!', '?') }}
{% if b > 1 %}{% break %}{% endif %}{% else %}none{% endfor %}
{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}
{%- endif %}{% endfor %}
{% set ns = namespace(n=0, text='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}
{% set ns.text = ns.text ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.text }}
{% filter upper %}shout{% endfilter %}{% set block %}set{{ 1 }}{% endset %}{{ block }}
{{ messages[-1] == messages[0] }} {{ strftime_now('%Y') | length }} {{ dict(a=1).get('a') }}
{{ "%05.1f" | format(3.14159) }} {{ 'a\\nb' | indent(2) }} {{ 3.7 | round | int }} {{ none }}
{{ documents is none }} {{ tools is none }} {{ "a,b" | replace(",", ";") }}
{{ [1, 2, 3][1:] | sum }}
"""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "gemma": GEMMA}
TEMPLATES["bricks"] = BRICKS

HELLO = [{"role": "user", "content": "Hello"}]
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": HELLO,
    "system": [{"role": "system", "content": " Be brief. "}, *HELLO],
    "turns": [
        *HELLO,
        {"role": "assistant", "content": "  Hi!\n"},
        {"role": "user", "content": "Write\n\n  a haiku. "},
        {"role": "assistant", "content": "Sea."},
        {"role": "user", "content": "{{ 1 + 1 }} {% for %} <|im_end|>"},
    ],
    "unicode": [{"role": "user", "content": "日本語 👩‍👩‍👧 e\u0301 \u00a0\u2028 ‏שלום \x00"}],
    "blank": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
}


def judged(source: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    """What transformers renders."""
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template([messages], chat_template=source, **variables)
    return str(rendered[0])


@cache
def own_template(model: Path) -> str:
    return str(gguf.GGUFReader(model).fields["tokenizer.chat_template"].contents())


@pytest.mark.judge
@pytest.mark.parametrize("prompting", [True, False])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_output_is_transformers(name: str, chat: str, prompting: bool) -> None:
    """The rendered text is transformers', to the character."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    ours = ChatTemplate(TEMPLATES[name], **tokens)
    text = ours.render(CHATS[chat], add_generation_prompt=prompting)
    expected = judged(TEMPLATES[name], CHATS[chat], add_generation_prompt=prompting, **tokens)
    assert text == expected


@pytest.mark.judge
def test_variables_and_parts_are_transformers() -> None:
    """Tools, further variables, tool calls and contents in parts come out the same."""
    tools = [{"type": "function", "function": {"name": "f", "description": "é <b>"}}]
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": "two"}}}
    messages = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}]
    given = {"tools": tools, "date_string": "1 May 2025", "bos_token": "<s>"}
    ours = ChatTemplate(LLAMA3, bos_token="<s>").render(
        messages, tools=tools, date_string="1 May 2025"
    )
    assert ours == judged(LLAMA3, messages, add_generation_prompt=True, **given)
    parts = [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "image"}]}]
    ours = ChatTemplate(GEMMA, bos_token="<s>").render(parts)
    assert ours == judged(GEMMA, parts, add_generation_prompt=True, bos_token="<s>")


@pytest.mark.judge
@pytest.mark.model
@pytest.mark.parametrize("chat", CHATS)
def test_default_models_own_template_is_transformers(default_model: Path, chat: str) -> None:
    """SmolLM2's template, as its file has it, gives transformers' text."""
    source = own_template(default_model)
    text = ChatTemplate(source, bos_token="<|im_start|>").render(CHATS[chat])
    assert text == judged(source, CHATS[chat], add_generation_prompt=True)
    assert text.endswith("<|im_start|>assistant\n")


def test_chatml_by_hand() -> None:
    """One conversation, written out."""
    assert ChatTemplate(CHATML).render(HELLO) == (
        "<|im_start|>system\nBe helpful.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_empty_keys_are_left_out() -> None:
    """A None is as if it were not there, as when transformers applies a template."""
    template = ChatTemplate("{{ messages[0].keys() | list }}")
    message = {"role": "user", "content": "x", "tool_calls": None}
    assert template.render([message]) == "['role', 'content']"


def test_a_template_can_refuse() -> None:
    """`raise_exception` becomes a TemplateError that says what the template said."""
    backwards = [{"role": "assistant", "content": "Hi"}]
    with pytest.raises(TemplateError, match="refuses these messages: Roles must alternate"):
        ChatTemplate(MISTRAL).render(backwards)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hello", "of type str, not a list"),
        ({"role": "user"}, "of type dict, not a list"),
        (None, "of type NoneType, not a list"),
        (["Hello"], "Message 0 is of type str"),
        ([*HELLO, {"content": "x"}], "Message 1 has the role None"),
        ([{"role": "", "content": "x"}], "has the role ''"),
        ([{"role": 3, "content": "x"}], "has the role 3"),
        ([{"role": "user", "content": 3}], "content of message 0 is of type int"),
        ([{"role": "user", "content": {"text": "x"}}], "content of message 0 is of type dict"),
        ([{"role": "user", "content": [object()]}], "holds a object"),
    ],
)
def test_misshaped_messages_are_refused(messages: Any, message: str) -> None:
    """What is no list of messages is a TemplateError that names the message and shows one."""
    with pytest.raises(TemplateError, match=message) as caught:
        ChatTemplate(CHATML).render(messages)
    assert '"role": "user"' in caught.value.way_out


def test_messages_that_hold_themselves_are_refused() -> None:
    """A cycle in the messages ends."""
    message: dict[str, Any] = {"role": "user", "content": []}
    message["content"].append(message)
    with pytest.raises(TemplateError, match="nested more than"):
        ChatTemplate("x").render([message])


def test_messages_are_not_changed() -> None:
    """Rendering leaves the caller's messages as they were."""
    messages = [{"role": "user", "content": ["x"], "extra": None}]
    ChatTemplate("{{ messages }}").render(messages)
    assert messages == [{"role": "user", "content": ["x"], "extra": None}]


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x", "{% endif %}", "{{ 1 | nonsense }}", "{" * 99_999]
)
def test_an_invalid_template_is_refused_at_once(source: str) -> None:
    """A template that does not compile, or is too long, is an error before any message."""
    with pytest.raises(TemplateError, match=r"not valid|is the limit"):
        ChatTemplate(source)


NEST = "{% set a = [1, 1] %}" + "{% set a = [a, a, a, a, a, a, a, a, a, a] %}" * 12
TUPLES = NEST.replace("[", "(").replace("]", ")")
A_MILLION = "{% set s = 'a' * 1000000 %}"
HUNGRY = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "filtered loops": "{% for i in range(99999) %}{% for j in range(99999) if 0 %}{% endfor %}"
    "{% endfor %}",
    "long body": "{% for i in range(99999) %}" + "{% set x = i %}" * 3000 + "{% endfor %}",
    "long text": "{% for i in range(99999) %}" + "x" * 30000 + "{% endfor %}",
    "text times": "{{ 'x' * 10**9 }}",
    "times text": "{{ 10**9 * 'x' }}",
    "list times": "{% set x = [1] * 10**9 %}",
    "doubling +": "{% set n = namespace(s='x') %}{% for i in range(64) %}"
    "{% set n.s = n.s + n.s %}{% endfor %}",
    "doubling ~": "{% set n = namespace(s='x') %}{% for i in range(64) %}"
    "{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubling set": "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set t %}"
    "{{ n.s }}{{ n.s }}{% endset %}{% set n.s = t %}{% endfor %}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "call tree": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call m() %}" * 15 + "{% call m() %}" * 10 + "x" + "{% endcall %}" * 25,
    "filter center": "{{ 'x' | center(10**9) }}",
    "filter indent": "{{ 'a\nb' | indent(10**9) }}",
    "filter replace": A_MILLION + "{{ s | replace('a', s) }}",
    "filter replace int": "{% set s = '1' * 99999 %}{{ s | replace(1, s) }}",
    "filter join": "{{ range(99999) | join('x' * 99999) }}",
    "filter batch": "{{ [1] | batch(linecount=10**9, fill_with=0) | list }}",
    "filter slice": "{{ [1] | slice(10**9) | list }}",
    "filter trim": A_MILLION + "{{ s | trim(chars='b' * 999999 ~ 'a') }}",
    "filter sort": "{{ (range(99999) | list * 99) | sort | length }}",
    "filter groupby": "{{ ([1] * 99999) | groupby('x', default='y' * 99999) | length }}",
    "filter map": "{{ ([[[0]]] * 9999) "
    "| map(attribute='0' ~ '.0' * 9999, default=1) | list | length }}",
    "filter sort attributes": "{{ ([{'a': 1}] * 9999) | sort(attribute='a' ~ ',a' * 9999) }}",
    "filter chain": "{{ range(1, 99999) " + "| select " * 40 + "| list | length }}",
    "method ljust": "{{ 'x'.ljust(10**9) }}",
    "method zfill": "{{ 'x'.zfill(10**9) }}",
    "method join": "{{ ('x' * 99999).join(range(99999) | map('string')) }}",
    "method replace": A_MILLION + "{{ s.replace('', s) }}",
    "method strip": A_MILLION + "{{ s.strip('b' * 999999 ~ 'a') }}",
    "method rfind": A_MILLION + "{{ s.rfind('b' ~ 'a' * 500000) }}",
    "method rsplit": A_MILLION + "{{ s.rsplit(sep='b' ~ 'a' * 500000) }}",
    "print shared": NEST + "{{ a }}",
    "compare shared": NEST + "{% set b = a %}{{ [a] == [b] }}",
    "json shared": NEST + "{{ a | tojson }}",
    "join shared": NEST + "{{ a | join }}",
    "map shared": NEST + "{{ a | map('string') | list }}",
    "concatenate shared": NEST + "{{ a ~ '' }}",
    "percent shared": NEST + "{{ '%s' % [a] }}",
    "format shared": NEST + "{{ '{}'.format(a) }}",
    "changed shared": NEST + "{% for i in [1, 2] %}{{ loop.changed(a) }}{% endfor %}",
    "hash shared": TUPLES + "{% set x = {a: 1} %}",
    "look up shared": TUPLES + "{{ messages[a] }}",
    "search shared": TUPLES + "{{ a in {} }}",
    "own namespace": "{% set n = namespace() %}{% set n.a = n %}{{ n }}",
}  # fmt: skip
WILD = {
    "huge power": "{{ 10 ** 100000000 }}",
    "squares": "{% set n = namespace(s=7) %}{% for i in range(64) %}{% set n.s = n.s * n.s %}"
    "{% endfor %}",
    "huge range": "{% for i in range(10**9) %}{% endfor %}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format inner width": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "filter format": "{{ '%1000000000d' | format(1) }}",
    "rounding": "{{ 1.5 | round(10**9, 'ceil') }}",
    "json indent": "{{ [[1]] | tojson(indent=10**9) }}",
    "sum of lists": "{{ [[1], [2]] | sum(start=[]) }}",
    "to bytes": "{{ (1).to_bytes(10**9) }}",
    "lorem": "{{ lipsum(10**9) }}",
    "macro for ever": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "block for ever": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "loop for ever": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "nested sources": "{{ " + "[" * 500 + "]" * 500 + " }}",
    "nested statements": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "many nots": "{{ " + "not " * 12000 + "x }}",
}
ESCAPES = {
    "class": "{{ ''.__class__.__mro__ }}",
    "item": "{{ ''['__class__'].mro() }}",
    "attr filter": "{{ (''|attr('__class__')).mro() }}",
    "format": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "format map": "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "globals": "{{ raise_exception.__globals__['json'] }}",
    "macro": "{% macro f() %}{% endmacro %}{{ f.__init__.__globals__ }}",
    "self": "{{ self.__init__.__globals__ }}",
    "cycler": "{{ cycler.__init__.__globals__.os }}",
    "generator": "{{ ([1] | map('string')).gi_frame.f_globals }}",
    "map attribute": "{{ ([''] | map(attribute='__class__') | first).mro() }}",
    "namespace": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "append": "{{ messages.append(1) }}",
    "pop": "{{ messages[0].pop('role') }}",
    "update": "{{ messages[0].update({}) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
    "range class": "{{ range.__self__ }}{{ range.__self__.x }}",
    "dict class": "{{ dict.mro() }}",
}


@pytest.mark.parametrize("name", HUNGRY)
def test_a_template_that_takes_too_much_is_stopped(name: str) -> None:
    """Whatever loops, grows or is large only when read runs out of its budget."""
    with pytest.raises(TemplateError, match="more steps or memory"):
        ChatTemplate(HUNGRY[name]).render(HELLO)


@pytest.mark.parametrize("name", WILD)
def test_a_template_that_has_no_bound_is_refused(name: str) -> None:
    """What no budget could bound is refused outright, and endless recursion ends."""
    with pytest.raises(TemplateError):
        ChatTemplate(WILD[name]).render(HELLO)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_template_cannot_reach_python(name: str) -> None:
    """Attributes, other files and changes to its input are out of a template's reach."""
    messages = [{"role": "user", "content": "Hello"}]
    with pytest.raises(TemplateError):
        ChatTemplate(ESCAPES[name]).render(messages)
    assert messages == HELLO


def test_long_conversations_have_a_budget_to_match() -> None:
    """Two thousand messages are no attack: the budget grows with what it is given."""
    turn = {"role": "user", "content": "word " * 200}
    answer = {"role": "assistant", "content": "word " * 200}
    for source in (CHATML, LLAMA3, MISTRAL):
        assert len(ChatTemplate(source).render([turn, answer] * 1000)) > 2_000_000
    text = ChatTemplate(CHATML).render([{"role": "user", "content": "é" * 5_000_000}])
    assert len(text) > 5_000_000


def test_renders_do_not_share_a_budget() -> None:
    """A failed render takes nothing from the next, and threads can share a template."""
    template = ChatTemplate(
        "{% for i in range(n) %}{% for j in range(n) %}x{% endfor %}{% endfor %}"
    )
    for _ in range(3):
        with pytest.raises(TemplateError):
            template.render(HELLO, n=5000)
        assert template.render(HELLO, n=100) == "x" * 10_000
    texts: list[str] = []

    def render() -> None:
        texts.append(template.render(HELLO, n=50))

    threads = [threading.Thread(target=render) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["x" * 2500] * 8
