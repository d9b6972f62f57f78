"""`attach(model, *artifacts)`: the same transformers model, adapted for the time being. It leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, overload

from torch import Tensor

from tunescope.attachment.attention.deltas import attending
from tunescope.attachment.bank.bank import Bank
from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.context_keys import check_in_force, positions_of
from tunescope.attachment.contexts import placed
from tunescope.attachment.guards.activations import lean_activations
from tunescope.attachment.guards.checkpointing import check_stands, recomputed
from tunescope.attachment.guards.compiled import compiled_anew
from tunescope.attachment.guards.four_bit import unpacked
from tunescope.attachment.guards.mamba_kernels import unfused
from tunescope.attachment.guards.marks import attached_to, check_bare, marked
from tunescope.attachment.guards.processes import alike
from tunescope.attachment.guards.same_tensors import unexchanged
from tunescope.attachment.head_hooks import pooled
from tunescope.attachment.held import Held
from tunescope.attachment.in_place import WHOLE, check_changes, whole
from tunescope.attachment.initial_artifacts import at_site, initialised, site_uses
from tunescope.attachment.site_hooks import acting, frozen
from tunescope.attachment.weights import Patched, patched
from tunescope.errors import UserError
from tunescope.methods.artifact import (
    Artifact,
    AttentionDelta,
    Context,
    KVContext,
    PatchDelta,
    SiteDelta,
    Spec,
    TokenContext,
)
from tunescope.models.anatomy import anatomy
from tunescope.models.split import check_known

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Attached(Held):
    """A model with artifacts attached: use `.model` as before, `.detach()` to have it back, or a `with` block.

    While attached, the base asks for no gradients; `parameters()` do, after `train()`.
    """

    def __init__(self, model: PreTrainedModel, artifacts: Sequence[Artifact]) -> None:
        super().__init__(model)
        self.artifacts = tuple(artifacts)
        self._patched: Patched | None = None
        contexts = [artifact for artifact in artifacts if isinstance(artifact.spec, Context)]
        self.wants_output_start = any(isinstance(c.spec, KVContext) and c.spec.infix for c in contexts) or (
            anatomy(model).kind == "decoder"
            and any(isinstance(artifact.spec, AttentionDelta) for artifact in artifacts)
        )
        self._beside = model.num_parameters()
        taken = {index: positions_of(model, artifact) for index, artifact in enumerate(contexts)}
        self.positions = sum(taken.values())
        self.tokens = sum(taken[index] for index, one in enumerate(contexts) if isinstance(one.spec, TokenContext))
        self._enter_or_leave()

    def _enter(self) -> None:
        check_bare(self.model)
        check_in_force(self.model, self.artifacts)
        enter = self._stack.enter_context
        in_weights = all(isinstance(artifact.spec, PatchDelta) for artifact in self.artifacts)
        enter(marked(self.model, self, wants_output_start=self.wants_output_start, in_weights=in_weights))
        changes = any(isinstance(artifact.spec, PatchDelta) for artifact in self.artifacts)
        self._check_same = enter(unexchanged(self.model, self.artifacts))
        enter(alike(self.model, self.named_parameters, in_weights=changes))
        enter(unpacked(self.model))
        enter(frozen(self.model))
        enter(lean_activations(self.model))
        patches = [(a.spec, a.tensors) for a in self.artifacts if isinstance(a.spec, PatchDelta)]
        self._patched = enter(patched(self.model, patches))
        if uses := site_uses(self.model, self.artifacts):
            enter(unfused(self.model))
        enter(acting(uses, self._drops))
        enter(placed(self.model, self.artifacts))
        enter(attending(self.model, self.artifacts))
        enter(recomputed(self.model, lambda: lambda: check_stands(self.model, self)))
        for artifact in self.artifacts:
            if isinstance(artifact.spec, SiteDelta) and artifact.spec.sites == ("pooled",):
                enter(pooled(self.model, artifact.spec, at_site(artifact, "pooled")))
        enter(compiled_anew(self.model))

    def __repr__(self) -> str:
        where = "Attached to" if attached_to(self.model) is self else "Detached from"
        specs = ", ".join(str(artifact.spec) for artifact in self.artifacts)
        own = sum(value.numel() for value in self.parameters())
        beside = f"{own:,} parameters to tune beside the model's {self._beside:,}"
        return f"<{where} {type(self.model).__name__}: {specs}; {beside}>"

    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise, by "INDEX.NAME": float leaves, the same objects that the artifacts hold."""
        if attached_to(self.model) is self:
            self._check_same()
        end = WHOLE if self.holds_values else ""
        return {
            f"{index}.{name}{end}": value
            for index, artifact in enumerate(self.artifacts)
            for name, value in artifact.tensors.items()
            if value.is_floating_point() and not artifact.spec.bound
        }

    @property
    def holds_values(self) -> bool:
        """Whether `in_place` is in force, by which the tensors are the weights themselves and no changes of them."""
        return self._patched is not None and self._patched.is_whole

    @property
    def is_weights(self) -> bool:
        """Whether changes of whole parameters are all that is attached, in one artifact."""
        spec = self.artifacts[0].spec
        return len(self.artifacts) == 1 and spec.whole_model and isinstance(spec, PatchDelta) and not spec.rows

    @contextmanager
    def in_place(self) -> Iterator[Self]:
        """Within it the tensors to optimise are the weights themselves; afterwards, as ever, what these changed by.

        16 bytes a parameter with AdamW in float32 instead of 24, and 18 of a model in 16 bits instead of 20. What a
        weight decay pulls to zero are then the weights, and not their change. The names end in ".whole" meanwhile.

        Raises UserError where anything else than one `Full` is attached, or one of single rows.
        """
        self._check_attached("in_place()")
        if self._patched is None or not self._patched.stands or not self.is_weights:
            specs = ", ".join(str(artifact.spec) for artifact in self.artifacts)
            raise UserError(f"in_place() is for full tuning alone, attach(model, Full()), and this is {specs}.")
        with whole(self._patched):
            yield self

    def _check_trains(self) -> None:
        if self.parameters() and any(artifact.in_force for artifact in self.artifacts):
            raise UserError("Lowered keys and values go stale in training: attach the context itself instead.")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it the model is bare; afterwards what was attached stands in it again, in the same tensors."""
        check_changes(self, "paused()")
        is_on = attached_to(self.model) is self
        self._leave()
        try:
            yield
        finally:
            if is_on:
                self._enter_or_leave()


@overload
def attach(
    model: PreTrainedModel, bank: Bank, /, *, tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0
) -> Banked: ...
@overload
def attach(
    model: PreTrainedModel, *artifacts: Spec | Artifact, tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0
) -> Attached: ...
def attach(
    model: PreTrainedModel,
    *artifacts: Spec | Artifact | Bank,
    tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int = 0,
) -> Attached | Banked:
    """The model with the artifacts in force, in the order given; specs are initialised, with torch seeded by `seed`.

    Contexts stand before the text in that order. At a site, deltas of linear maps act first, then those of whole
    blocks, each in that order. Trainable tensors are float32 where the model is in half precision, else in its type.

    A bank is attached alone: every row of a batch then names what it takes.

    model: a transformers model. artifacts: trained or loaded ones, specs, or one bank. tokenizer: of the model, for
    specs with text in them. `detach()`, or the end of a `with`, leaves the model as it was, to the bit.

    Raises UserError for a family or site that is not reached, an artifact made for another base, tokenizer or shape,
    and a model that has something attached already.
    """
    if not artifacts:
        raise UserError("attach(model) was given nothing to attach: attach(model, LoRA(rank=8)), for example.")
    _refuse_wrapped(model)
    _refuse_other(model)
    check_known(model)
    check_bare(model)
    if isinstance(artifacts[0], Bank) and len(artifacts) == 1:
        return Banked(model, artifacts[0], tokenizer, seed)
    given = [artifact for artifact in artifacts if not isinstance(artifact, Bank)]
    if len(given) < len(artifacts):
        raise UserError("A bank is attached alone: put what all rows share into each of its entries, as a list.")
    return Attached(model, initialised(model, given, tokenizer, seed))


def _refuse_other(model: object) -> None:
    """UserError for what is no transformers model: its name, a wrapper around one, a pipeline."""
    if hasattr(model, "base_model"):  # as what torch.compile makes of one has
        return
    inner = next((name for name in ("model", "module") if hasattr(getattr(model, name, None), "base_model")), None)
    how = f"attach(model.{inner}, ...)" if inner else "AutoModelForCausalLM.from_pretrained(NAME), for one"
    raise UserError(f"attach() takes a transformers model, and this is {type(model).__name__}: {how}.")


def _refuse_wrapped(model: PreTrainedModel) -> None:
    """UserError for peft's wrapper, whose base has its LoRA in it, but nothing of a prompt or a prefix."""
    if not (hasattr(model, "peft_config") and hasattr(model, "get_base_model")):
        return
    name = getattr(model, "active_adapter", None)  # a list, where there are several or none
    active = model.peft_config.get(name) if isinstance(name, str) else None
    if active is not None and active.is_prompt_learning:
        raise UserError(
            f"attach() takes the model inside of peft's wrapper, and that has nothing of its {active.peft_type.value}: "
            "model.save_pretrained(FOLDER), then tunescope import FOLDER --from peft --model MODEL --out OUT, and "
            "attach(model.get_base_model(), *tunescope.load(OUT), ...)."
        )
    raise UserError(
        "attach() takes the model inside of peft's wrapper: attach(model.get_base_model(), ...); for a delta at sites "
        "by name with peft's adapter merged, attach(model.merge_and_unload(), ...)."
    )
