"""The command as a process: its help, its signals, its pipes."""

import os
import signal
import subprocess
import sys

import pytest

OUTRIDER = [sys.executable, "-m", "outrider"]


def start(*args, **options):
    return subprocess.Popen([*OUTRIDER, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.fixture
def many_prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "hi"}\n' * 5000)
    return file


def run(models, prompts, *flags):
    return start("generate", "--prompts", str(prompts), "--target", models["target"], "--max-tokens", "200", *flags)


def test_an_interrupt_ends_quietly_with_130(models, many_prompts):
    process = run(models, many_prompts)
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_reader_that_goes_away_ends_it_quietly(models, many_prompts):
    with run(models, many_prompts) as process:
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert b"Traceback" not in err
    assert b"Broken" not in err


HEAVY = {"numpy", "tokenizers", "torch", "jinja2", "huggingface_hub", "outrider._core"}


@pytest.mark.parametrize("args", ["", "--help", "generate --help", "models --help", "models list --help"])
def test_help_is_text_and_imports_nothing_heavy(args):
    code = (
        f"import sys; from outrider.cli import main; sys.exit(main(sys.argv[1:]) or bool({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *args.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: outrider")
    assert done.stderr == ""


def test_a_terminal_that_knows_only_ascii_breaks_nothing(models):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    process = start("generate", "é", "--target", models["target"], "--max-tokens", "60", env=environment)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
