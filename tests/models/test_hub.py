"""Hub references, against a stand-in hub on loopback that speaks what huggingface_hub asks."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outrider.errors import UsageError
from outrider.models import hub

COMMITS = {"main": "a" * 40, "v1": "b" * 40, "refs%2Fpr%2F1": "c" * 40}
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "model.Q4_K_M.gguf": b"GGUF and so on",
    "sub/model.gguf": b"GGUF below",
    "modeling_evil.py": b"import os",
    "pytorch_model.bin": b"\x80\x04",
    "consolidated.safetensors": b"again",
    "original/model.safetensors": b"and again",
}
REPOS = {"some/model": FILES, "only/gguf": {"m.gguf": b"GGUF"}, "private/model": FILES}


class Hub(http.server.BaseHTTPRequestHandler):
    """A read-only hub: repositories, revisions, files, one of them private."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = urlsplit(self.path).path.strip("/")
        self.server.asked.append(path)
        status, headers, body = self._find(path)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _find(self, path: str) -> tuple[int, dict[str, str], bytes]:
        parts = path.split("/")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        hidden = repo.startswith("private/") and self.headers.get("Authorization") != "Bearer secret"
        if repo not in REPOS or hidden:
            return (401 if hidden else 404), {"X-Error-Code": "RepoNotFound"}, b""
        if parts[0] == "api":
            return self._describe(repo, parts[4:])
        revision, name = parts[3], "/".join(parts[4:])
        if revision not in COMMITS and revision not in COMMITS.values():
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if name not in REPOS[repo]:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        body = REPOS[repo][name]
        etag = hashlib.sha256(body).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMITS.get(revision, revision)}, body

    def _describe(self, repo: str, rest: list[str]) -> tuple[int, dict[str, str], bytes]:
        kind, revision = rest[:2] if len(rest) > 1 else ("revision", "main")
        if revision not in COMMITS and revision not in COMMITS.values():
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if kind == "tree":
            entries = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in REPOS[repo].items()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(entries).encode()
        info = {
            "_id": "0",
            "id": repo,
            "modelId": repo,
            "sha": COMMITS.get(revision, revision),
            "private": False,
            "tags": [],
            "downloads": 0,
            "siblings": [{"rfilename": name} for name in REPOS[repo]],
        }
        return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def run(server, tmp_path):
    """Run Python in a process of its own, since huggingface_hub reads its settings when it is imported."""

    def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
        settings = {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }
        environment = kept | settings | environment
        return subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def fetch(run):
    """Return where a reference lies, and what was said."""

    def fetch(reference: str, **environment: str) -> tuple[str, str]:
        code = (
            "import sys; from outrider.errors import OutriderError; from outrider.models.hub import locate\n"
            "try: print(locate(sys.argv[1]))\nexcept OutriderError as error: print(error, file=sys.stderr)\n"
        )
        done = run("-c", code, reference, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""

    return fetch


def test_a_repository_comes_without_code_pickles_and_copies(fetch):
    path, _ = fetch("hf:some/model")
    found = {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()}
    assert found == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (Path(path) / "model.safetensors").read_bytes() == b"weights"


def test_one_file_comes_alone(fetch, server):
    path, _ = fetch("hf:some/model/model.Q4_K_M.gguf")
    assert Path(path).read_bytes() == b"GGUF and so on"
    assert not any("config.json" in asked for asked in server.asked)
    path, _ = fetch("hf:some/model/sub/model.gguf")
    assert Path(path).read_bytes() == b"GGUF below"


def test_revisions_are_respected(fetch, server):
    path, _ = fetch("hf:some/model@v1")
    assert Path(path).name == COMMITS["v1"]
    path, _ = fetch("hf:some/model@v1/model.Q4_K_M.gguf")
    assert Path(path).parent.name == COMMITS["v1"]
    assert "some/model/resolve/v1/model.Q4_K_M.gguf" in server.asked
    path, _ = fetch("hf:some/model@refs%2Fpr%2F1/model.Q4_K_M.gguf")
    assert Path(path).parent.name == COMMITS["refs%2Fpr%2F1"]
    _, said = fetch("hf:some/model@v9")
    assert said.startswith("hf:some/model@v9 cannot be had")


def test_offline_uses_what_is_there_and_asks_nobody(fetch, server):
    there, _ = fetch("hf:some/model")
    file_there, _ = fetch("hf:some/model/model.Q4_K_M.gguf")
    server.asked.clear()
    assert fetch("hf:some/model", HF_HUB_OFFLINE="1") == (there, "")
    assert fetch("hf:some/model/model.Q4_K_M.gguf", HF_HUB_OFFLINE="1") == (file_there, "")
    path, said = fetch("hf:some/other", HF_HUB_OFFLINE="1")
    assert path == ""
    assert said.startswith("hf:some/other cannot be had")
    assert "HF_HUB_OFFLINE" in said
    assert server.asked == []


def test_tokens_are_sent(fetch):
    path, said = fetch("hf:private/model")
    assert path == ""
    assert said.startswith("hf:private/model cannot be had")
    path, _ = fetch("hf:private/model", HF_TOKEN="secret")
    assert Path(path).name == COMMITS["main"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("hf:no/such", "hf:no/such cannot be had"),
        ("hf:some/model/none.gguf", "hf:some/model/none.gguf cannot be had"),
        ("hf:only/gguf", "has no config.json; if it holds GGUF files, name one: hf:only/gguf/FILE.gguf"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(fetch, reference, said):
    path, message = fetch(reference)
    assert path == ""
    assert said in message


def test_a_hub_that_does_not_answer_is_named(fetch):
    _, said = fetch("hf:some/model", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_ETAG_TIMEOUT="1")
    assert said.startswith("hf:some/model cannot be had")


@pytest.mark.parametrize("reference", ["hf:some/model", "hf:some/model@v1", "hf:some/model/model.Q4_K_M.gguf"])
def test_show_fetches_nothing(run, fetch, server, reference):
    done = run("-m", "outrider", "models", "show", reference)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"outrider: {reference} is not here; outrider models pull {reference} fetches it\n"
    assert server.asked == []
    fetch(reference)
    server.asked.clear()
    assert "is not here" not in run("-m", "outrider", "models", "show", reference).stderr  # but is no model, either
    assert server.asked == []


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("hf:some/model@refs/pr/1", "write its slashes as %2F: @refs%2Fpr%2F1"),
        ("hf:some/model@refs/pr/1/model.gguf", "write its slashes as %2F: @refs%2Fpr%2F1"),
        ("hf:some/model@..%2F..%2Fx/model.gguf", "revision '../../x'"),
        ("hf:some/model@topic/x", "the slashes of a revision are written %2F: @topic%2F..."),
    ],
)
def test_a_revision_with_slashes_is_not_taken_for_a_file(reference, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        hub.locate(reference)


@pytest.mark.parametrize(
    "reference",
    [
        "hf:",
        "hf:model",
        "hf:some/model@",
        "hf:some/model/",
        "hf:some model/x",
        "hf:some/model/pytorch_model.bin",
        "hf:some/model/model.safetensors",
        "hf:some/model/../../../etc/passwd.gguf",
    ],
)
def test_malformed_references_are_refused_before_anything_is_asked(reference):
    with pytest.raises(UsageError, match="hf:"):
        hub.locate(reference)
