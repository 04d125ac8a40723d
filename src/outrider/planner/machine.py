"""What of a machine decides how fast passes are, for a plan to be held against."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from outrider import _core
from outrider.backends.native import physical_cores

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as a plan knows it.

    Attributes:
        cpu: The processor's own name, with family and model where the system tells them.
        cores: Physical cores that this process may use.
        isa: The instruction set that the core runs on.
        threads: That compute.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True}

    cpu: str
    cores: int
    isa: str
    threads: int

    def differences(self, other: Machine) -> list[str]:
        """Return in words where another machine differs from this one."""
        return [
            f"{one.name} {getattr(other, one.name)} instead of {getattr(self, one.name)}"
            for one in fields(self)
            if getattr(self, one.name) != getattr(other, one.name)
        ]


def this_machine(environment: Mapping[str, str], threads: int | None = None, cpuinfo: Path = _CPUINFO) -> Machine:
    """Return the machine that this process runs on.

    Args:
        environment: Its ``OUTRIDER_ISA`` chooses the instruction set, as in the core.
        threads: That are asked for; by default what the engine takes.
        cpuinfo: Where Linux tells of its processors.
    """
    cores = physical_cores()
    isa = environment.get("OUTRIDER_ISA") or _core.available_isas()[-1]
    return Machine(_cpu(cpuinfo), cores, isa, min(cores, _core.MAX_THREADS) if threads is None else threads)


def _cpu(cpuinfo: Path) -> str:
    known: dict[str, str] = {}
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            known.setdefault(key.strip(), value.strip())
    name = known.get("model name") or platform.processor() or platform.machine()
    parts = [f"{what} {known[key]}" for what, key in (("family", "cpu family"), ("model", "model")) if key in known]
    return " ".join([name, *parts])
