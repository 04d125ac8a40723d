"""The demo, on tiny models."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"


def run(*args):
    return subprocess.run([sys.executable, DEMO, *args], capture_output=True, text=True, check=False)


def test_it_shows_both_answers_and_that_they_are_the_same(models):
    done = run("def add(", "--target", models["target"], "--draft", models["draft"], "--max-tokens", "30")
    assert done.returncode == 0, done.stderr
    assert "the same 30 tokens, the same text" in done.stdout
    assert "target alone" in done.stdout
    assert "with draft drafting" in done.stdout
    assert done.stdout.count(" tokens/s") == 2


def test_it_refuses_in_one_line(models):
    done = run("hi", "--target", models["target"], "--draft", models["proteins"])
    assert done.returncode == 2
    assert done.stderr.startswith("demo: proteins as a draft for target: it is refused: ")
    assert done.stderr.count("\n") == 1
