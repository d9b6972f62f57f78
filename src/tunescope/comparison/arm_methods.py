"""What an arm is made of: its methods by name, and the format in which servers of others take them."""

from tunescope.attachment.merge import can_merge, can_merge_into
from tunescope.methods.artifact import Spec
from tunescope.methods.text_form import name_of
from tunescope.search import names
from tunescope.trial.arm import Ready
from tunescope.trial.bench import Bench
from tunescope.trial.demos.spec import NAME as DEMOS

MESSAGES = "messages"


def methods_of(arm: Ready) -> tuple[str, ...]:
    """Demonstrations and a search by theirs, everything else by its file's name."""
    found = [names.show(arm.search).partition(":")[0]] if arm.search is not None else []
    found += [DEMOS] if arm.in_front else []
    kinds: list[type[Spec]] = [type(spec) for spec in arm.specs]
    return (*found, *map(name_of, kinds))


def served_as(arm: Ready, bench: Bench) -> str:
    """A format that writes all of it; "" where there is none, or the arm has no artifact.

    Words beside a change of weights are two exports, and elsewhere than on a decoder a context has no place.
    """
    kind = bench.kind
    if arm.search is not None:
        return MESSAGES if kind == "decoder" else ""
    if any(can_merge(spec) and not can_merge_into(bench.model, spec) for spec in arm.specs):
        return ""  # such as a LoRA of whole blocks
    forms = {type(spec).served_as for spec in arm.specs} | ({MESSAGES} if arm.in_front else set())
    if "" in forms or not forms or (kind != "decoder" and forms != {"merged"}):
        return ""
    return "soft_token" if forms == {"soft_token", "merged"} else forms.pop() if len(forms) == 1 else ""
