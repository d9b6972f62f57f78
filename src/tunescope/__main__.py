"""`tunescope` and `python -m tunescope`: the command line, where Ctrl-C is one word from the first import on."""

import sys


def main() -> None:
    """Run the command line; the exit code is 130 for a Ctrl-C that comes while it is imported, otherwise its own."""
    try:
        from tunescope.cli.app import main as run
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
