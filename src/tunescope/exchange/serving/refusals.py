"""Which artifacts a form holds; for the others, the reason and what to do instead."""

from __future__ import annotations

from tunescope.attachment.merge import can_merge
from tunescope.errors import UserError
from tunescope.exchange.outgoing import Outgoing
from tunescope.methods.artifact import AttentionDelta, Context, KVContext, SiteDelta, Spec, TokenContext
from tunescope.methods.text_form import name_of
from tunescope.models.anatomy import anatomy

KEPT = "keep it as it is, and attach it in Python"


def check_only_changes(given: Outgoing, form: str) -> None:
    """UserError for what is no change of weights."""
    for artifact in given.artifacts:
        if not can_merge(artifact.spec):
            raise _refusal(form, artifact.spec)


def check_tokens(given: Outgoing, form: str, *, changes: bool) -> None:
    """UserError for what is no token context of a decoder; with `changes`, changes of weights are held too."""
    kind = anatomy(given.model).kind
    if kind != "decoder":
        raise UserError(f"--to {form} puts tokens in front of a decoder's text, and this model is an {kind}: {KEPT}.")
    for artifact in given.artifacts:
        if not isinstance(artifact.spec, TokenContext) and not (changes and can_merge(artifact.spec)):
            raise _refusal(form, artifact.spec)
    if not any(isinstance(artifact.spec, TokenContext) for artifact in given.artifacts):
        raise UserError(f"--to {form} holds a context of tokens, and there is none: use --to merged.")


def check_contexts(given: Outgoing, form: str) -> None:
    """UserError for what is no context in front of a decoder's text."""
    kind = anatomy(given.model).kind
    if kind != "decoder":
        raise UserError(
            f"--to {form} puts keys and values in front of a decoder's text, and this is an {kind}: {KEPT}."
        )
    for artifact in given.artifacts:
        spec = artifact.spec
        if can_merge(spec):
            raise UserError(
                f"--to {form} cannot hold {name_of(type(spec))}: export it apart, --to merged, and serve that."
            )
        if not isinstance(spec, Context) or getattr(spec, "infix", False):
            raise UserError(
                f"--to {form} cannot hold {name_of(type(spec))}: it is no context in front of the text; {KEPT}."
            )


def check_tokenizer(given: Outgoing, form: str) -> None:
    """UserError where the tokenizer is not given."""
    if given.tokenizer is None:
        raise UserError(f"--to {form} needs the model's tokenizer: export(..., tokenizer=tokenizer).")


def _refusal(form: str, spec: Spec) -> UserError:
    return UserError(f"--to {form} cannot hold {name_of(type(spec))}: {_reason(spec)}.")


def _reason(spec: Spec) -> str:
    if isinstance(spec, TokenContext):
        return (
            "it is tokens in front of the text and no change of weights. Use --to soft_token or embeds, or --to "
            "messages where it is words"
        )
    if isinstance(spec, KVContext):
        return f"it is keys and values in every layer, which neither a weight nor a token can stand for; {KEPT}"
    if isinstance(spec, AttentionDelta):
        return f"it changes how attention is computed, which neither a weight nor a token can stand for; {KEPT}"
    if can_merge(spec):
        return "it is a change of weights and no context. Export it apart, --to merged or peft"
    if isinstance(spec, SiteDelta) and spec.sites == ("pooled",):
        return f"it is a classification head of our own, for which the base's class has no place; {KEPT}"
    return f"its work inside a layer is no change of a weight, and no server does it; {KEPT}, or tune a lora instead"
