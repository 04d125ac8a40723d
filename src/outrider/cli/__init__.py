"""The command line: one file a command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the answer is no. 2: bad usage or input, said in one line on stderr. 130: interrupted. 141: whoever
    read our output has gone.
    """
    try:
        from outrider.cli.app import run

        return run(argv)
    except KeyboardInterrupt:  # from the first import on
        return 130
