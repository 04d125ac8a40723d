"""The examples that ask a server, on a toy."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

from serving import serving
from toy_server import toy_llm

from outrider import SamplingParams
from outrider.server.app import make_app
from outrider.server.logs import Log
from outrider.server.service import Service
from outrider.server.settings import Settings

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "openai_client.py"


def run(*args):
    command = [sys.executable, EXAMPLE, *args, "--max-tokens", "20"]
    return subprocess.run(command, capture_output=True, check=False)


def test_the_openai_client_streams_and_edits(tmp_path):
    file = tmp_path / "file.py"
    file.write_text("one = 1\n")
    messages = [{"role": "user", "content": "hi"}]
    (output,) = toy_llm().generate([messages], SamplingParams(max_tokens=20))
    with serving(make_app(Service(toy_llm(), Settings(), Log(StringIO())))) as address:
        answered = run("hi", "--base-url", f"{address}v1")
        edited = run("Write two.", "--file", str(file), "--base-url", f"{address}v1")
        refused = run("hi" * 1000, "--base-url", f"{address}v1")
    assert answered.returncode == edited.returncode == 0, (answered.stderr, edited.stderr)
    assert answered.stdout.decode() == output.text + "\n"
    assert answered.stderr.decode() == f"{output.usage.completion_tokens} tokens; {output.speculation.reason}\n"
    assert b"tokens were drafted and accepted" in edited.stderr
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"openai_client: Error code: 400")
