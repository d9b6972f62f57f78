"""Commands as a user types them, in this process."""

import signal
import sys

from tunescope.cli import app


def call(monkeypatch, capsys, *words):
    """(exit code, stdout, stderr) of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["tunescope", *map(str, words)])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        app.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capsys.readouterr()
    return code, out, err
