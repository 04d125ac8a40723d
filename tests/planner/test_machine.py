"""What a machine is called, and how two differ."""

from dataclasses import replace

from outrider.planner.machine import Machine, this_machine

ONE = Machine("Zen family 26 model 2", 2, "avx512_vnni", 2)


def test_a_machine_does_not_differ_from_itself():
    assert this_machine({}).differences(this_machine({})) == []
    assert this_machine({}).threads == this_machine({}).cores


def test_every_difference_is_named():
    other = replace(ONE, cpu="Xeon", threads=1)
    assert ONE.differences(other) == ["cpu Xeon instead of Zen family 26 model 2", "threads 1 instead of 2"]


def test_what_is_asked_for_counts(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Zen\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: other\n")
    found = this_machine({"OUTRIDER_ISA": "portable"}, threads=3, cpuinfo=cpuinfo)
    assert (found.cpu, found.isa, found.threads) == ("Zen family 26 model 2", "portable", 3)
    assert this_machine({}, cpuinfo=tmp_path / "none").cpu
