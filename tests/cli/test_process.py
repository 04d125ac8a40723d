"""The command as a process: its help, its signals, its pipes."""

import fcntl
import os
import shlex
import signal
import subprocess
import sys

import pytest
import typer

from outrider.cli import app

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


@pytest.mark.parametrize("args", [("generate", "hi", "--max-tokens", "3"), ("models", "list"), ("--help",)])
def test_a_full_disk_is_said_in_one_line(models, args):
    target = ("--target", models["target"]) if args[0] == "generate" else ()
    with open("/dev/full", "w") as full:
        done = subprocess.run([*OUTRIDER, *args, *target], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "outrider: the output cannot be written: No space left on device\n"


def test_a_terminal_that_goes_away_ends_it_quietly(models):
    read, write = os.pipe()
    os.close(read)
    args = [*OUTRIDER, "generate", "hi", "--target", models["target"], "--max-tokens", "3"]
    done = subprocess.run(args, stdout=write, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 141


def test_waiting_for_another_process_is_said_and_can_be_interrupted(tmp_path):
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / "smollm2-135m.gguf.part").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        process = start("models", "pull", "smollm2-135m", env=os.environ | {"OUTRIDER_CACHE": str(tmp_path)})
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert said.startswith(b"another process is fetching smollm2-135m; waiting for it (")
    assert (process.returncode, out, err) == (130, b"", b"")


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


def test_every_error_of_clicks_is_bad_usage():
    assert {base.__name__ for base in typer.BadParameter.__mro__ if issubclass(base, app._BadUsage)} == {
        *("BadParameter", "UsageError", "ClickException"),
    }


def closing(models, redirection, *args):
    """Run a command with a standard stream that is closed or full; return its status, stdout and stderr."""
    command = [*OUTRIDER, *args, "--target", models["target"], "--max-tokens", "3"]
    line = f"exec {shlex.join(command)} {redirection}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_streams_that_are_closed_or_full_are_said_where_there_is_somewhere_to_say_it(models):
    assert closing(models, ">&-", "generate", "hi") == (
        2,
        "",
        "outrider: standard output is closed; send it to a file, or to /dev/null\n",
    )
    assert closing(models, ">&- 2>&-", "generate", "hi") == (2, "", "")
    assert closing(models, "2>&-", "generate", "hi", "--draft", "no/such.gguf") == (2, "", "")
    assert closing(models, "2>/dev/full", "generate", "hi", "--draft", "no/such.gguf") == (2, "", "")
    status, out, err = closing(models, "2>/dev/full", "generate", "hi")
    assert (status, out != "", err) == (2, True, "")
    status, out, err = closing(models, "2>&-", "generate", "hi")
    assert (status, out != "", err) == (0, True, "")
    for flags in (("generate", "-"), ("generate", "--prompts", "-")):
        status, out, err = closing(models, "<&-", *flags)
        assert (status, out) == (2, "")
        assert err.startswith("outrider: standard input is closed; ")
        assert err.count("\n") == 1


def test_a_reader_of_the_account_that_goes_away_ends_it_with_141(models):
    read, write = os.pipe()
    os.close(read)
    args = [*OUTRIDER, "generate", "hi", "--target", models["target"], "--max-tokens", "3"]
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 141


def test_an_interrupt_while_starting_is_quiet(tmp_path):
    (tmp_path / "typer.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = start("models", "list", env=environment)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130
