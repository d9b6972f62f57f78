"""lm-evaluation-harness: its tasks as data of a comparison, and its own command with our model among its models."""

from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from tunescope.errors import UserError
from tunescope.system.say import say

MARK = "lm_eval:"  # in front of the name of one of its tasks


def lm_eval(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
    """Begin lm-evaluation-harness with our model: --model tunescope --model_args base=MODEL,artifact=RUN/best.

    All that follows is the harness's own: --tasks, --batch_size, --include_path. Of several artifacts: artifact=A+B.
    """
    from tunescope.exchange.harness import entry

    entry.run(words)


def rows_of(name: str, parts: Mapping[str, str | None], include: str | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Part -> file, and the kind of task with its fields, of --task NAME; a harness task brings both along.

    parts: the files that were named.

    Raises:
        UserError: data beside a harness task, or none without one.
    """
    named = {part: path for part, path in parts.items() if path is not None}
    if not name.startswith(MARK):
        if include is not None:
            raise UserError("--include-path is for a task of lm-evaluation-harness: --task lm_eval:NAME")
        if "train" not in named:
            raise UserError("There are no rows: give a file, or type: --task lm_eval:NAME")
        return named, {"kind": name}
    if named:
        option = next(iter(named)).replace("train", "data")
        raise UserError(f"--task {name} brings its own rows, and {option} is given beside it. Leave one out.")
    from tunescope.exchange.harness.rows import taken

    found = taken(name.removeprefix(MARK), include)
    for note in found.notes:
        say(f"note: {note}")
    return found.data, found.task
