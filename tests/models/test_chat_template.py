"""Chat templates: the same text as transformers, and no harm from hostile ones."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

import pytest
import tiny
from transformers.utils.chat_template_utils import render_jinja_template

from outrider.errors import ModelFileError, UsageError
from outrider.models.chat_template import ChatTemplate

MESSAGES = [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": 'Say "hé" & <b>go</b>'},
    {
        "role": "assistant",
        "content": "<think>hm</think>\nok",
        "tool_calls": [{"name": "f", "arguments": {"é": [1, None]}}],
    },
    {"role": "user", "content": "again"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["x"]}}}]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(
        source, bos_token="<s>", eos_token="</s>", now=lambda: datetime(2024, 7, 26, tzinfo=timezone.utc)
    )


@pytest.mark.parametrize(
    "source",
    [
        tiny.CHAT_TEMPLATE,
        "{{ bos_token }}{% for m in messages %}\n  {%- if m['role'] == 'user' %}\n    U: {{ m['content'] | trim }}\n  "
        "{%- elif m.role != 'system' -%}\n    A: {{ m['content'] }}{{ eos_token }}\n  {% endif %}\n{% endfor %}\n",
        "{%- if tools %}{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=4) }}{% endfor %}{% endif %}",
        "{%- set ns = namespace(last=0, found=false) %}{%- for m in messages[::-1] %}"
        "{%- set index = (messages | length - 1) - loop.index0 %}{%- if not ns.found and m.role == 'user' %}"
        "{%- set ns.last = index %}{%- set ns.found = true %}{%- endif %}{%- endfor %}{{ ns.last }}",
        "{% for m in messages %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
        "{% else %}{{ m.content.rstrip() }}{% endif %}{% if loop.last %}{% break %}{% endif %}|{% endfor %}",
        "{% macro line(name, extra='') %}[{{ name | upper }}{{ extra }}]{% endmacro %}"
        "{% for m in messages %}{{ line(m.role, extra=loop.index) }}{% endfor %}{{ line('end') }}",
        "{% for m in messages if m.role == 'user' %}{{ loop.first }}{{ m.content | length }}{% else %}none{% endfor %}",
        "{{ messages | map(attribute='role') | list | join(', ') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "{% for m in messages %}{% for k, v in m.items() | sort %}{{ k }}={{ v }};{% endfor %}{% endfor %}",
        "{% for m in messages %}{% if m.tool_calls is defined %}{% for call in m.tool_calls %}"
        "{{ '{\"name\": \"' ~ call.name ~ '\", \"args\": ' ~ (call.arguments | tojson) ~ '}' }}"
        "{% endfor %}{% endif %}{% endfor %}",
        "{% set x | trim %}  padded  {% endset %}{{ x }}{% filter upper %}shout{% endfilter %}",
        "{% set text = 'a,b' + ',c' %}{{ text.split(',') | last }}{{ 'x' * 3 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ [1] + [2] }}",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}{{ undefined_thing }}{{ none is none }}",
        "{{ 'yes' if add_generation_prompt else 'no' }}{{ messages[0]['missing'] is defined }}",
        "{% if messages[0].content is string and messages is iterable and messages[0] is mapping %}ok{% endif %}",
        "{{ dict(a=1)['a'] }}{% for i in range(3) %}{{ loop.cycle('a', 'b') }}{% endfor %}{{ 'ab'.replace('a', 'c') }}",
        "{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}body{% endcall %}",
        "{% for item in [[1, [2]], [3]] recursive %}{{ loop(item) if item is iterable else item }},{% endfor %}",
        "{{ ['b', 'a'] | sort | join }}{{ 'title me' | title }}{{ -3 | abs }}{{ '3' | int + 1 }}{{ [3, 1] | max }}",
        # As Gemma 3's: roles must alternate, contents are text or parts of it.
        "{{ bos_token }}{%- set first = '' -%}{%- set rest = messages -%}{%- if messages[0]['role'] == 'system' -%}"
        "{%- if messages[0]['content'] is string -%}{%- set first = messages[0]['content'] + '\n\n' -%}{%- else -%}"
        "{%- set first = messages[0]['content'][0]['text'] -%}{%- endif -%}{%- set rest = messages[1:] -%}{%- endif -%}"
        "{%- for m in rest -%}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
        "{{ raise_exception('roles must alternate') }}{%- endif -%}"
        "{%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}"
        "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}{%- if m['content'] is string -%}"
        "{{ m['content'] | trim }}{%- elif m['content'] is iterable -%}{%- for item in m['content'] -%}"
        "{%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- endif -%}"
        "{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}"
        "{%- endif -%}",
        # As Qwen3's: earlier thoughts are cut out, and a switch that nobody sets turns thinking off.
        "{%- for m in messages %}{%- set content, thought = m.content, '' %}{%- if m.reasoning_content is defined and "
        "m.reasoning_content is not none %}{%- set thought = m.reasoning_content %}{%- elif '</think>' in content %}"
        "{%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
        "{%- if loop.last or (not loop.last and thought) %}"
        "{{- '<think>' + thought.strip('\n') + '</think>' }}{%- endif %}"
        "{%- if not (content.startswith('<tool>') and content.endswith('</tool>')) %}{{- content }}{%- endif %}"
        "{%- if m.tool_calls %}{%- for call in m.tool_calls %}{%- if call.function %}{%- set call = call.function %}"
        "{%- endif %}{{- call.arguments if call.arguments is string else call.arguments | tojson }}"
        "{%- endfor %}{%- endif %}"
        "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
        "{{- 'off' }}{%- endif %}",
        "   {# a comment #}   {% if true %}   kept   {% endif %}   \n\n end",
    ],
)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_the_text_is_that_of_transformers(source, add_generation_prompt):
    (wanted,), _ = render_jinja_template(
        [MESSAGES],
        tools=TOOLS,
        chat_template=source,
        add_generation_prompt=add_generation_prompt,
        bos_token="<s>",
        eos_token="</s>",
    )
    assert template(source).render(MESSAGES, tools=TOOLS, add_generation_prompt=add_generation_prompt) == wanted


def test_the_clock_is_an_argument():
    assert template("{{ strftime_now('%d %b %Y') }}").render(MESSAGES) == "26 Jul 2024"


def test_what_a_template_refuses_is_the_callers_fault():
    with pytest.raises(UsageError, match="refuses the messages: Roles must alternate!"):
        template("{{ raise_exception('Roles\nmust alternate!') }}").render(MESSAGES)


def test_messages_stay_as_they_are():
    before = repr(MESSAGES)
    template("{% for m in messages %}{{ m.items() | list | length }}{% endfor %}").render(MESSAGES)
    with pytest.raises(ModelFileError):
        template("{{ messages.append(1) }}").render(MESSAGES)
    with pytest.raises(ModelFileError):
        template("{{ messages[0].update(role='x') }}").render(MESSAGES)
    assert repr(MESSAGES) == before


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(10 ** 9) %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** 10 * 'a' }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 2 ** (10 ** 10) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000d}'.format(1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ '\t'.expandtabs(10 ** 10) }}",
        "{{ 'a' | indent(10 ** 10) }}",
        "{{ messages | tojson(indent=10 ** 10) }}",
        "{{ (1).to_bytes(10 ** 10, 'little') }}",
        "{{ 1.5 | round(10 ** 10, 'ceil') }}",
        "{{ [] | slice(10 ** 10) | list }}",
        "{{ lipsum(n=10 ** 6) }}",
        "{{ strftime_now('%999999999d') }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro f(n) %}{% for i in range(99999) %}{{ n }}{% endfor %}{% endmacro %}{{ f('a' * 99999) }}",
        "{% for x in [1, 2] recursive %}{{ loop(range(100000)) }}{% endfor %}",
        "{% set x = 'a' * 4000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
        "{% set x = 'a' * 4000000 %}{% for i in range(100000) %}{{ x.count('b') }}{{ x[1:] | length }}{% endfor %}",
        "{% set x = 'a' * 4000000 %}{% for i in range(100000) %}{{ x | upper | length }}{% endfor %}",
        "{% set x = 'a' * 4000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
        "{% set x = 'a ' * 2000000 %}{{ x.split() | length }}",
    ],
)
def test_no_template_runs_for_ever_or_fills_the_memory(source):
    with pytest.raises(ModelFileError) as caught:
        template(source).render(MESSAGES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[0].get.__self__.__class__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ strftime_now.now() }}",
        "{{ ''|attr('__class__') }}",
        "{{ self.__init__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'x' %}",
    ],
)
def test_there_is_no_way_out_of_the_sandbox(source):
    try:
        text = template(source).render(MESSAGES)
    except ModelFileError:
        return
    assert text in ("", "None")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% if %}", "not valid"),
        ("{{ x", "not valid"),
        ("{{ x | no_such_filter }}", "No filter named 'no_such_filter'"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "not valid"),
        ("a" * (1 << 20 | 1), "has 1048577 characters, the limit is 1048576"),
    ],
)
def test_what_is_no_template_is_refused_when_it_is_opened(source, said):
    with pytest.raises(ModelFileError, match=said) as caught:
        template(source)
    assert "\n" not in str(caught.value)


def test_long_chats_fit_the_budget():
    messages = [{"role": "user", "content": "word " * 2000}] * 200  # two million characters
    text = template(tiny.CHAT_TEMPLATE).render(messages)
    assert len(text) > 2_000_000


def test_threads_do_not_share_a_budget():
    shared = template(tiny.CHAT_TEMPLATE)
    messages = [{"role": "user", "content": "x" * 1_000_000}]
    wanted = shared.render(messages)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(shared.render(messages))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [wanted] * 8
