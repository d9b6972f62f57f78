"""The command line: each verb one thin function. torch and transformers are imported when a verb needs them."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from tunescope import __version__
from tunescope.cli import artifacts, comparisons, harness, listings, predictions, runs, studies
from tunescope.cli.whole_numbers import exactly
from tunescope.errors import Note, UserError
from tunescope.exchange.format import format_lines
from tunescope.probes import names
from tunescope.system import plugins
from tunescope.system.forkserver import calm
from tunescope.system.kernels import keep_few
from tunescope.system.say import say

LOGGERS = "comparison.loggers"
SHOWWARNING = warnings.showwarning

app = App(
    name="tunescope",
    version=__version__,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(converter=exactly),
    help_format="plaintext",  # the list of verbs has no marks, and what reads them takes a fifth of its time
    help="Tune a language model, and see what tuning did. Begin with: tunescope demo",
)


def _listing(verb: Callable[..., Any], heading: str, lines: Sequence[str], name: str | None = None) -> None:
    """The verb, with what it may be given listed at the end of its --help."""
    app.command(verb, name, help_epilogue="\n\n".join([f"{heading}:", *lines]))


app.command(comparisons.demo)
_listing(comparisons.compare, "Loggers", plugins.lines(LOGGERS))
for plain in (
    *(comparisons.check, comparisons.resume, comparisons.report, comparisons.index),
    *(runs.status, runs.watch, runs.work),
    *(predictions.predict, studies.reproduce),
    *(artifacts.push, artifacts.pull, harness.lm_eval),
    *(listings.data, listings.arms, listings.doctor),
):
    app.command(plain)
_listing(studies.probe, "Probes", names.lines())
_listing(studies.anchors, "Sections", plugins.lines(names.DEMONSTRATIONS))
_listing(studies.search, "Searches", plugins.lines("search.methods"))
_listing(artifacts.export, "Formats", format_lines("write"))
_listing(artifacts.import_, "Formats", format_lines("read"), "import")
for verb in app:
    app[verb].help_format = "markdown"


def main() -> None:
    """Run the command line.

    The exit code is 0, 2 for what the user can mend, 70 for a fault of ours, 130 for Ctrl-C, 143 for a kill. A
    comparison in which no arm is done is one of the two (`output.check_finished`).
    """
    _open_closed()
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # what matters of it we say ourselves, with a count
    keep_few()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    calm()
    warnings.showwarning = _noted
    try:
        _check_out(sys.argv[1:])
        app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (UserError, CycloptsError) as problem:
        _fail(problem)
    except KeyboardInterrupt as problem:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another would only show where this one was
        _say_last(f"\n{str(problem) or 'stopped'}")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as problem:
        _fail_unforeseen(problem)


def _open_closed() -> None:
    """Streams that are closed from the start: what is printed goes nowhere, and no other file gets their number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _check_out(typed: Sequence[str]) -> None:
    """UserError for an --out with nothing in it, as of a variable that the shell does not have."""
    if "--out=" in typed or ("--out", "") in pairwise(typed):
        raise UserError("--out is empty. Give a name, or leave it out.")


def _fail_unforeseen(problem: Exception) -> NoReturn:
    """What no verb has foreseen: memory that ends, a disk that fails, or a fault of ours, which is told in a file."""
    from tunescope.cli import fault, no_room
    from tunescope.system.files import disk_problem

    short = no_room.line(problem, sys.argv[1:], _options_of_verb)
    if short is not None:
        _fail(UserError(short))
    reason = disk_problem(problem)
    if reason is not None:
        _fail(UserError(f"{reason}; mend that, then type the same command again."))
    kept = fault.keep(problem, sys.argv[1:])
    what = " ".join(f"{type(problem).__name__}: {problem}".split())[: fault.LONGEST]
    send = f"Please look through {kept} and send it in" if kept else "Please send in what stands above"
    _say_last(f"error: this is a fault of tunescope, and not of what you gave ({what}). {send}.")
    sys.exit(70)


def _noted(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Our own notes as a line; other libraries' warnings as Python shows them."""
    if issubclass(category, Note):
        say(f"note: {message}", sys.stderr)
    else:
        SHOWWARNING(message, category, *place, **more)


def _fail(problem: Exception) -> NoReturn:
    line = _without_option(problem) or " ".join(part.strip() for part in str(problem).splitlines())
    more = f" Type: tunescope {_verb_typed()}--help" if isinstance(problem, CycloptsError) else ""
    _say_last(f"error: {line}{more}")
    sys.exit(2)


def _say_last(line: str) -> None:
    """The exit code stands, also where standard error cannot be written, as on a disk that is full."""
    try:
        say(line, sys.stderr)
    except OSError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (Python writes what is left there, and changes the code)


def _without_option(problem: Exception) -> str:
    """Of a --model where MODEL is an argument: that it stands alone; "" of all else."""
    if not isinstance(problem, UnknownOptionError):
        return ""
    typed = problem.token.keyword or problem.token.value or ""
    name = typed.partition("=")[0].removeprefix("--").upper()
    is_argument = any(name in one.names for one in problem.argument_collection)
    return f"Unknown option: {typed}. {name} stands by itself, without an option in front." if is_argument else ""


def _options_of_verb() -> set[str]:
    """The options that the verb typed has; none where the first word is no verb."""
    found = [app[word].assemble_argument_collection() for word in sys.argv[1:2] if word in app]
    return {name for arguments in found for one in arguments for name in one.names}


def _verb_typed() -> str:
    """With a space behind it; nothing where the first word is no verb."""
    return next((f"{word} " for word in sys.argv[1:2] if word in app), "")


if __name__ == "__main__":
    main()
