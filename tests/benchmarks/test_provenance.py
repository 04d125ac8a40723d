import argparse
import json
from datetime import datetime, timezone

from benchmarks.provenance import add_output_arguments, hand_in, parse_cpuinfo, provenance

X86 = """processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Some Server CPU
flags\t\t: fpu sse avx2 fma avx512f avx512_vnni amx_tile amx_int8

processor\t: 1
model name\t: Some Server CPU
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU part\t: 0xd40\n"


def test_amx_is_told_apart():
    name, flags = parse_cpuinfo(X86)
    assert name == "Some Server CPU (family 6, model 143)"
    assert flags == ("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "amx_int8")
    assert "amx_int8" not in parse_cpuinfo(X86.replace("amx_int8", ""))[1]


def test_arm_has_features_instead_of_flags():
    assert parse_cpuinfo(ARM)[1] == ("asimd", "asimddp", "i8mm")


def test_provenance_bears_the_given_date():
    found = provenance(datetime(2026, 11, 29, 12, tzinfo=timezone.utc))
    assert found.date == "2026-11-29T12:00:00+00:00"
    assert found.cpus >= 1
    assert found.packages["outrider"]
    assert found.argv


def test_the_document_is_the_last_line_and_the_file(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_output_arguments(parser)
    out = tmp_path / "new" / "result.json"
    hand_in(parser.parse_args(["--out", str(out), "--date", "2026-01-02"]), "how much?", {"answer": 1})
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document == json.loads(out.read_text())
    assert document["question"] == "how much?"
    assert document["results"] == {"answer": 1}
    assert document["provenance"]["date"] == "2026-01-02T00:00:00"
