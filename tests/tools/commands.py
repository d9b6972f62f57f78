"""Commands as a user types them, in this process."""

import signal
import sys

from tunescope.cli import app


def call(monkeypatch, capsys, *words):
    """(exit code, stdout, stderr) of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["tunescope", *map(str, words)])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        app.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        signal.signal(signal.SIGTERM, handler)
    out, err = capsys.readouterr()
    return code, out, err
