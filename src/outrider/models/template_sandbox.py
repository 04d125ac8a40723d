"""Jinja for templates that nobody vouches for: no way out of the sandbox, and a budget for work and memory.

Jinja's own sandbox keeps a template from touching Python, not from running for ever or filling the memory. Here every
iteration and every value that an expression reads or makes is charged to a budget, in proportion to its size, and only
filters, methods and operators whose work is in proportion to what they are given are to be had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType
from typing import Any, TypeVar, cast

from jinja2 import nodes, pass_environment
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

_T = TypeVar("_T")

# fmt: off
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last",
    "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort",
    "string", "title", "trim", "unique", "upper",
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
        "islower", "isnumeric", "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
        "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines",
        "startswith", "strip", "swapcase", "title", "upper",
    }),
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    list: frozenset({"count", "index", "copy"}),
    tuple: frozenset({"count", "index"}),
}
# fmt: on
_MAX_INDENT = 16
_MAX_TEXT = 1 << 22  # characters of any one string
_MAX_BITS = 1024  # of any one integer
_STEP = 50  # what an operation costs whatever its size, in characters: both take about as long


class TemplateLimitError(TemplateError):
    """The template asked for more than its budget."""


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose templates run on a budget; one rendering at a time.

    Attributes:
        budget: What is left, in characters read or made; every operation counts for 50 at least.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        """Make an environment.

        Args:
            functions: What templates may call, besides ``range``, ``dict`` and ``namespace``.
        """
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_Generation, loopcontrols])
        self.budget = 0
        self.concat = self._concat  # type: ignore[method-assign]
        self.filters = {name: FILTERS[name] for name in _FILTERS}
        self.filters |= {"tojson": _to_json, "join": _join, "replace": _replace, "safe": _same, "indent": _indent}
        self.filters |= {"_charged": _charged, "_counted": _counted, "_concatenated": _concatenated}
        self.globals = {"range": safe_range, "dict": dict, "namespace": Namespace, **functions}
        self._functions = tuple(self.globals.values())

    def spend(self, amount: int) -> None:
        """Take from the budget.

        Raises:
            TemplateLimitError: It does not suffice.
        """
        self.budget -= max(0, amount)
        if self.budget < 0:
            raise TemplateLimitError("it does more work, or makes a longer text, than any prompt needs")

    def charge(self, value: _T) -> _T:
        """Spend a value's size, nested parts included, and return it."""
        self.spend(_STEP)
        if isinstance(value, (str, bytes)):
            self.spend(len(value))
            if len(value) > _MAX_TEXT:
                raise TemplateLimitError(f"it makes a text of {len(value)} characters; the limit is {_MAX_TEXT}")
        elif isinstance(value, int):
            self.check_bits(value.bit_length())
        elif isinstance(value, dict):
            for key, item in value.items():
                self.charge(key)
                self.charge(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.charge(item)
        return value

    def check_bits(self, num_bits: int) -> None:
        """Refuse numbers whose arithmetic takes longer than a step."""
        if num_bits > _MAX_BITS:
            raise TemplateLimitError(f"it makes a number of {num_bits} bits; the limit is {_MAX_BITS}")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Charge an operator for its result before it is computed."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("formatting with % is not allowed in a template")
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            self.check_bits(left.bit_length() * right)
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, bytes, list, tuple)) and isinstance(times, int):
                    self.spend(len(sequence) * times)
        self.charge(left)
        self.charge(right)
        return super().call_binop(context, operator, left, right)

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call this: its own macros and loops, our functions, harmless methods."""
        if isinstance(obj, BuiltinMethodType):
            return obj.__name__ in _METHODS.get(type(obj.__self__), frozenset())
        if isinstance(getattr(obj, "__self__", None), LoopContext):
            return True
        return isinstance(obj, (Macro, LoopContext)) or any(obj is function for function in self._functions)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call on behalf of a template."""
        self.charge(args)
        if isinstance(obj, LoopContext):  # the recursion of a loop: more iterations
            return super().call(context, obj, *(_counted(self, arg) for arg in args), **kwargs)
        if isinstance(obj, BuiltinMethodType):
            self.charge(obj.__self__)
        if isinstance(obj, BuiltinMethodType) and isinstance(obj.__self__, str):
            if obj.__name__ == "join":
                return _join(self, args[0] if args else (), obj.__self__)
            if obj.__name__ == "replace":
                return _replace(self, obj.__self__, *args, **kwargs)
        return super().call(context, obj, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _Charging().visit(super()._parse(source, name, filename))
        return template

    def _concat(self, parts: Iterable[str]) -> str:
        return "".join([self.charge(part) for part in parts])


class _Charging(NodeTransformer):
    """Puts a filter that charges around what expressions read and make, and around what loops go over."""

    def visit_charged(self, node: nodes.Expr) -> nodes.Filter:
        """Charge for the value of an expression."""
        self.generic_visit(node)
        return _filtered(node, "_charged")

    visit_List = visit_Dict = visit_Call = visit_charged  # noqa: N815

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        if node.node is not None:  # None: the filter of a block
            node.node = _filtered(node.node, "_charged")
        return _filtered(node, "_charged")

    def visit_Test(self, node: nodes.Test) -> nodes.Test:  # noqa: N802
        self.generic_visit(node)
        node.args = [_filtered(argument, "_charged") for argument in node.args]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "_charged")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_charged")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_charged") if isinstance(node.arg, nodes.Slice) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_charged") if node.ctx == "load" else node  # otherwise a target of assignment

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concatenated")

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _filtered(part, "_charged") for part in node.nodes
        ]
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        self.generic_visit(node)
        charged = cast("nodes.Filter", node.call)
        node.call = cast("nodes.Call", charged.node)  # the block's syntax wants the bare call
        return node

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_counted")
        return node


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr", node), name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """``{% generation %}`` marks what a model is trained on; here its body is all that matters."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_environment
def _charged(environment: BudgetedEnvironment, value: _T) -> _T:
    return environment.charge(value)


@pass_environment
def _counted(environment: BudgetedEnvironment, items: Iterable[_T]) -> Iterator[_T]:
    for item in items:
        yield environment.charge(item)


@pass_environment
def _concatenated(environment: BudgetedEnvironment, parts: Iterable[Any]) -> str:
    return environment.concat(str(environment.charge(part)) for part in parts)


@pass_environment
def _join(environment: BudgetedEnvironment, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    items = [item if attribute is None else environment.getitem(item, attribute) for item in value]
    for item in items:
        environment.charge(item)
        environment.charge(d)
    return str(d).join(map(str, items))


@pass_environment
def _replace(environment: BudgetedEnvironment, text: str, old: str, new: str, count: int = -1) -> str:
    environment.charge(text)
    environment.spend((str(text).count(old) + 1) * (len(new) + 1))
    return str(text).replace(old, new, count)


@pass_environment
def _to_json(  # noqa: PLR0913
    environment: BudgetedEnvironment,
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """As transformers does it: plain JSON, nothing escaped for HTML."""
    environment.charge(value)
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError(f"tojson indents by {indent}; the limit is {_MAX_INDENT}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _same(value: _T) -> _T:
    return value


@pass_environment
def _indent(environment: BudgetedEnvironment, text: str, width: int = 4, first: bool = False) -> str:  # noqa: FBT001, FBT002
    if not 0 <= width <= _MAX_INDENT:
        raise SecurityError(f"indent by {width}; the limit is {_MAX_INDENT}")
    environment.charge(text)
    lines = text.split("\n")
    kept = [lines[0]] if not first else []
    return "\n".join(kept + [" " * width + line if line else line for line in lines[len(kept) :]])
