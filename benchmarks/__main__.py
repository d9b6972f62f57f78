"""`python -m benchmarks` runs all benchmarks, `python -m benchmarks NAME ...` those named; --tiny in seconds."""

from __future__ import annotations

import sys

from benchmarks.tools.running import names, run

TINY = "--tiny"


def main(arguments: list[str]) -> int:
    asked = [argument for argument in arguments if argument != TINY]
    unknown = [name for name in asked if name not in names()]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}. There are: {', '.join(names())}.", file=sys.stderr)
        return 2
    for name in asked or names():
        run(name, tiny=TINY in arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
