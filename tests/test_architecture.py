"""Rules of the code base that no type checker knows."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import outrider
from outrider.cli.app import app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "outrider"
FILES = sorted(SOURCE.rglob("*.py"))

# Imports go from right to left, never from left to right; rooms of one group may use each other.
ROOMS = [
    {"errors", "types"},
    {"_core", "verification", "sampling", "metrics"},
    {"models", "drafters", "backends"},
    {"engine"},
    {"planner", "audit", "distill"},
    {"server", "cli"},
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PUBLIC_NAMES = 25
MAX_FLAGS = 22


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            of_outrider = [f"outrider.{alias.name}" for alias in node.names]
            names = of_outrider if node.module == "outrider" else [node.module]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("outrider."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):  # these open every door
        return
    for imported in imported_rooms(path):
        assert RANK[imported] <= RANK[room], f"{room} may not import {imported}"


def test_every_room_has_its_rank():
    rooms = {path.name.split(".")[0] for path in SOURCE.iterdir() if not path.name.startswith("__")}
    assert rooms - {"py"} <= set(RANK)


def test_verification_needs_numpy_only():
    for path in (SOURCE / "verification").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module]
            for module in modules:
                package = module.split(".")[0]
                assert package in {"numpy", "outrider"} | sys.stdlib_module_names, f"{path.name} imports {module}"


@pytest.mark.parametrize(
    ("statement", "strangers"),
    [
        ("import outrider", {"numpy", "torch", "transformers", "rich", "typer", "starlette", "outrider._core"}),
        ("from outrider import LLM", {"torch", "transformers", "rich", "typer", "starlette"}),
    ],
)
def test_importing_outrider_imports_nothing_it_does_not_need(statement, strangers):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not strangers & set(done.stdout.split())


def test_public_names_are_few_and_exist():
    assert len(outrider.__all__) <= MAX_PUBLIC_NAMES
    assert set(outrider.__all__) <= set(dir(outrider))
    for name in outrider.__all__:
        assert getattr(outrider, name).__doc__
    assert outrider.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        outrider.nothing  # noqa: B018


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def test_the_native_core_stays_in_small_files():
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in {".h", ".cpp", ".inl"}:
            assert len(path.read_text().splitlines()) <= MAX_FILE_LINES, path.name


# A new flag is a decision: it is written down here, in docs/cli.md, and defended in review.
ENGINE_FLAGS = [
    *("--target", "--draft", "--draft-options", "--plan", "--store"),
    *("--num-speculative-tokens", "--draft-tree", "--rule"),
    *("--threads", "--ctx-size"),
]
GENERATION_FLAGS = [
    *ENGINE_FLAGS,
    *("--max-tokens", "--temperature", "--top-p", "--top-k", "--min-p", "--seed", "--stop", "--no-chat"),
]
COMMANDS = {
    "audit check": ["CERTIFICATE", "--json"],
    "audit exact": ["--out", "--json"],
    "audit endpoint": [
        *("--base-url", "--baseline-url", "--target", "--model", "--api-key-env", "--extra-body", "--prompts", "--tv"),
        *("--budget", "--near-tie", "--max-requests", "--concurrency", "--timeout", "--out", "--yes", "--json"),
    ],
    "audit pair": [
        *("--target", "--draft", "--draft-options", "--draft-tree", "--rule", "--num-speculative-tokens", "--threads"),
        *("--batches", "--temperature", "--top-p", "--top-k", "--min-p", "--presence-penalty", "--prompts"),
        *("--draws", "--seed", "--no-chat", "--state", "--out", "--json"),
    ],
    "bench": ["--prompts", "--repeats", "--json", *GENERATION_FLAGS],
    "generate": ["PROMPT", "--prompts", "--prediction", "--json", *GENERATION_FLAGS],
    "plan": [
        *("--target", "--draft", "--models", "--prompts", "--validate", "--save", "--report", "--require", "--json"),
        *("--draft-options", "--rule", "--threads", "--ctx-size"),
        *("--max-tokens", "--temperature", "--top-p", "--top-k", "--min-p", "--seed", "--stop", "--no-chat"),
    ],
    "models check": ["TARGET", "DRAFT", "--measure", "--prompts", "--json"],
    "models list": ["--json"],
    "models pull": ["REF", "--json"],
    "models show": ["REF", "--json"],
    "serve": [
        *("--host", "--port", "--api-key-file", "--max-sequences", "--max-waiting", "--cache-tokens", "--max-body"),
        *("--request-timeout", "--shutdown-timeout", "--log-text", "--json"),
        *ENGINE_FLAGS,
    ],
}


def commands():
    """Return every command with the flags and arguments it takes."""

    def walk(command, name):
        if hasattr(command, "commands"):
            for child, below in command.commands.items():
                yield from walk(below, f"{name} {child}".strip())
        else:
            yield name, [one.opts[0] if one.opts[0].startswith("-") else one.metavar for one in command.params]

    return dict(walk(typer.main.get_command(app), ""))


def test_commands_and_flags_are_those_agreed_on():
    assert {name: sorted(flags) for name, flags in commands().items()} == {
        name: sorted(flags) for name, flags in COMMANDS.items()
    }
    for flags in COMMANDS.values():
        assert len([flag for flag in flags if flag.startswith("-")]) <= MAX_FLAGS
