"""docs/cli.md lists every command and flag as the code has them.

After a change: ``python tests/cli/test_docs.py`` writes the lists anew; the prose around them stays.
"""

import re
from pathlib import Path

import typer

from outrider.cli.app import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"<!-- (?P<name>[a-z ]+) -->\n.*?<!-- end -->", re.DOTALL)


def commands(command=None, name=""):
    command = command or typer.main.get_command(app)
    for child, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {child}".strip())
    if name and not hasattr(command, "commands"):
        yield name, command


def table(command):
    rows = ["| | default | |", "|---|---|---|"]
    for parameter in command.params:
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else ""
        name = f"{option} {parameter.metavar or ''}".strip().replace("|", "\\|")
        default = "" if parameter.default is None or parameter.default is False else f"`{parameter.default}`"
        rows.append(f"| `{name}` | {default} | {parameter.help} |")
    return "\n".join(rows)


def rewritten(page):
    blocks = {f"outrider {name}": table(command) for name, command in commands()}
    return BLOCK.sub(lambda block: f"<!-- {block['name']} -->\n{blocks[block['name']]}\n<!-- end -->", page)


def test_the_page_says_what_the_code_says():
    page = PAGE.read_text()
    assert {block["name"] for block in BLOCK.finditer(page)} == {f"outrider {name}" for name, _ in commands()}
    assert rewritten(page) == page, "python tests/cli/test_docs.py brings docs/cli.md up to date"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
