"""`tunescope` and `python -m tunescope`: the command line; Ctrl-C is one word from the first import to the end."""

import signal
import sys


def main() -> None:
    """Run the command line; the exit code is 130 for a Ctrl-C that comes while it is imported, otherwise its own."""
    try:
        from tunescope.cli.app import main as run
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    try:
        run()
    finally:  # what comes when all is said would be raised wherever Python is while it ends, and be printed there
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    main()
