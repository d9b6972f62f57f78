"""A model says what is attached to it, and refuses what would lose that without a word."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from tunescope.attachment.guards.guidance import guidance
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.fingerprint import REGISTERED
from tunescope.models.positions import seen_by

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

ATTACHED = "_tunescope_attached"
BODY = "_tunescope_body"  # of the model that something is attached to, which another may have, too
_HOLDING: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models that something is attached to

WANTS_OUTPUT_START = "_tunescope_wants_output_start"
REPLICATE = "_replicate_for_data_parallel"  # what torch.nn.DataParallel asks each module for, at every call
STARTS = "_tunescope_starts"  # of each thread: `output`, the column of the input's last token, while `generate` runs,
# and `guidance`, its scale then; `call`, the column of each row, and `labels`, how many, as the call that is on has it
TRAINER = "transformers.trainer"  # the module that asks it before the first step
STANDING = "_tunescope_standing"  # of each that stands in, in the order they came: what it hides


def attached_to(model: PreTrainedModel) -> object:
    """What is attached to the model, an `Attached` or a `Banked`; None for a bare model."""
    return model.__dict__.get(ATTACHED)


def check_bare(model: PreTrainedModel) -> None:
    """UserError where anything acts in the model: attached to that, to a part of it, or to one that shares a part."""
    if any(ATTACHED in module.__dict__ or BODY in module.__dict__ for module in model.modules()):
        raise UserError("This model has artifacts attached already: detach() first, or attach all in one call.")
    mine = set(model.modules())
    for other in list(_HOLDING):
        if other is not model and any(one in mine and any(one.children()) for one in other.modules()):
            raise UserError(
                f"This model shares layers with another, a {type(other).__name__}, that has artifacts attached, which "
                "would act here, too: detach() that first, or copy the layers."
            )


def wants_output_start(model: PreTrainedModel) -> bool:
    """Whether something is attached that acts from where the output starts, so that a call without a cache tells it."""
    return bool(getattr(model, WANTS_OUTPUT_START, False))


def told_start(model: PreTrainedModel) -> Any:
    """The column of each row's last input token, as the call says it, or `generate`; None where neither does."""
    starts = model.__dict__.get(STARTS)
    start = getattr(starts, "call", None)
    return getattr(starts, "output", None) if start is None else start


def told_labels(model: PreTrainedModel) -> int:
    """How many labels each row of the call that is on has, of tokens; 0 for none, and for one a row."""
    return int(getattr(model.__dict__.get(STARTS), "labels", 0))


def told_guidance(model: PreTrainedModel) -> float:
    """The scale of the classifier-free guidance that `generate` runs with; 1 where it does not, or has none."""
    return float(getattr(model.__dict__.get(STARTS), "guidance", 1.0))


@contextmanager
def marked(model: PreTrainedModel, tuned: object, *, wants_output_start: bool, in_weights: bool) -> Iterator[None]:
    """The model holds what is attached to it, so that it stays attached when nobody else does.

    in_weights: all of it stands in the model's own parameters, which its `save_pretrained` then saves as they are.
    """

    own: dict[str, Any] = {ATTACHED: tuned, WANTS_OUTPUT_START: wants_output_start, STARTS: threading.local()}
    own |= {"generate": _generate(model)} if wants_output_start and hasattr(type(model), "generate") else {}
    with (
        _named_holding(model),
        _bodies_marked(model),
        _parts_kept(model, in_weights=in_weights),
        _gradients_cleared(model, tuned),
        standing_in(model, own),
        _start_taken(model) if wants_output_start else nullcontext(),
    ):
        yield


@contextmanager
def _named_holding(model: PreTrainedModel) -> Iterator[None]:
    _HOLDING.add(model)
    try:
        yield
    finally:
        _HOLDING.discard(model)


@contextmanager
def _bodies_marked(model: PreTrainedModel) -> Iterator[None]:
    """They say that something is attached, and refuse to be copied for each GPU."""

    def replicate() -> NoReturn:
        raise UserError(
            f"torch.nn.DataParallel copies this {type(model).__name__} to several GPUs, and what is attached to it "
            "does not go along. Begin one process for each GPU, torchrun --nproc-per-node N SCRIPT, or use one GPU: "
            "CUDA_VISIBLE_DEVICES=0 python SCRIPT."
        )

    with ExitStack() as stack:
        stack.enter_context(standing_in(model, {REPLICATE: replicate}))
        for one in dict.fromkeys((model.base_model, *anatomy(model).entries.values())):
            stack.enter_context(standing_in(one, {BODY: True, REPLICATE: replicate}))
        yield


@contextmanager
def _parts_kept(model: PreTrainedModel, *, in_weights: bool) -> Iterator[None]:
    """The model, and every part of it, refuse what would take a part of what is attached along, or leave all out."""
    with ExitStack() as stack:
        for part in model.modules():
            own = _refusals(model, part)
            if in_weights or not hasattr(part, "save_pretrained"):
                del own["save_pretrained"]
            stack.enter_context(standing_in(part, own))
        stack.callback(model.register_state_dict_post_hook(_around_told).remove)
        yield


@contextmanager
def _gradients_cleared(model: PreTrainedModel, tuned: object) -> Iterator[None]:
    """The model's `zero_grad` clears what is tuned too, and refuses a Trainer that finds nothing of it to train.

    With an optimizer of one's own too, for a Trainer clips and saves the model's parameters alone.
    """
    plain, own = model.zero_grad, getattr(tuned, "parameters", list)

    def zero_grad(set_to_none: bool = True) -> None:
        is_trainer = sys._getframe(1).f_globals.get("__name__") == TRAINER
        is_idle = REGISTERED not in model._modules and not any(one.requires_grad for one in model.parameters())
        if is_trainer and is_idle:
            raise UserError(
                "This Trainer would train nothing: what is attached is among the model's parameters only within "
                "`with tuned.registered():`, and none of the model's own is to be trained. Make the Trainer, and let "
                "it train, within that."
            )
        plain(set_to_none)
        for value in own():
            if value.grad is not None and set_to_none:
                value.grad = None
            elif value.grad is not None:
                value.grad.detach_().zero_()

    with standing_in(model, {"zero_grad": zero_grad}):
        yield


def _around_told(model: PreTrainedModel, state: Mapping[str, Any], prefix: str, _metadata: object) -> None:
    """A whole model that is saved, of which this is the base, asks nobody but for this state."""
    is_base = model.base_model is model and prefix == f"{model.base_model_prefix}."
    if is_base and REGISTERED not in model._modules:
        warnings.warn(
            f"What is attached stands on this {type(model).__name__}, a part of the model whose state is taken now: "
            "a file of it has the base's weights, and nothing of what is attached. Attach to the whole model.",
            stacklevel=2,
        )


def _refusals(model: PreTrainedModel, part: nn.Module) -> dict[str, Any]:
    name = type(part).__name__
    it = f"This {name} has" if part is model else f"This {name} is of a {type(model).__name__} that has"

    def save_pretrained(*_: object, **__: object) -> NoReturn:
        raise UserError(
            f"save_pretrained would save this {name} without what is attached to it. To keep that: "
            "ts.save(FOLDER, artifacts, model=model), or, for changes of weights, detach() and ts.merge(model, "
            "*artifacts) first. To save the bare model: detach() first."
        )

    def copied(*_: object) -> NoReturn:  # with the hooks, nobody could detach what is attached to the copy
        raise UserError(
            f"{it} artifacts attached and cannot be copied or pickled so: detach() first, and attach again afterwards. "
            "To keep the artifacts: ts.save(FOLDER, artifacts, model=model)."
        )

    return {"save_pretrained": save_pretrained, "__deepcopy__": copied, "__reduce_ex__": copied}


@contextmanager
def _start_taken(model: PreTrainedModel) -> Iterator[None]:
    """`output_start` is read from the call of the model, and goes no further: not every family would hand it on."""

    names = argument_names(model)

    def before(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        starts = model.__dict__[STARTS]
        starts.call = kwargs.get("output_start")
        starts.labels = _of_tokens((dict(zip(names, args, strict=False)) | kwargs).get("labels"))
        return args, {name: value for name, value in kwargs.items() if name != "output_start"}

    def after(*_: object) -> None:
        model.__dict__[STARTS].call, model.__dict__[STARTS].labels = None, 0

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _of_tokens(labels: Tensor | None) -> int:
    """How many each row has; 0 where they are one a row, or numbers."""
    is_so = labels is not None and labels.dim() == 2 and not labels.is_floating_point()
    return labels.shape[1] if labels is not None and is_so else 0


@contextmanager
def standing_in(model: nn.Module, own: Mapping[str, Any]) -> Iterator[None]:
    """These are attributes of the model itself for the time being; afterwards those that were.

    Of two the earlier may end first, as where `detach` is called within `registered`.
    """
    before = {name: model.__dict__[name] for name in own if name in model.__dict__}
    later = model.__dict__.setdefault(STANDING, [])
    try:
        later.append(before)
        model.__dict__.update(own)
        yield
    finally:
        later[:] = [one for one in later if one is not before]
        if not later:
            model.__dict__.pop(STANDING, None)
        for name, value in own.items():
            held = next((one for one in later if one.get(name) is value), model.__dict__)
            held.pop(name, None)
            held.update({name: before[name]} if name in before else {})


def _generate(model: PreTrainedModel) -> Callable[..., Any]:
    """The model's own, which tells where the output begins: not every cache and way of decoding lets one see it."""

    def generate(*args: Any, **kwargs: Any) -> Any:
        starts = model.__dict__[STARTS]
        before = getattr(starts, "output", None), told_guidance(model)
        starts.output = _last_column(args, kwargs)
        starts.guidance = guidance(model, args, kwargs)
        try:
            return type(model).generate(model, *args, **kwargs)
        finally:
            starts.output, starts.guidance = before

    return generate


def _last_column(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The column of the input's last token.

    Behind a cache the ids may be the new ones alone, beside a mask of all: by that transformers, too, tells them apart.
    """
    embeds = kwargs.get("inputs_embeds")
    text = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None)) if embeds is None else embeds
    if text is None:
        return 0
    shape = getattr(kwargs.get("attention_mask"), "shape", None)
    is_new = embeds is None and shape is not None and shape[1] != text.shape[1]
    return int(text.shape[1]) - 1 + (seen_by(kwargs) if is_new else 0)
