"""A model with a bank attached: each row of a batch with the artifacts under the name that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from torch import Tensor, nn

from tunescope.attachment.attention.function import STATE
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.bank.bank import Bank, Entry
from tunescope.attachment.bank.batch import Batch, deltas_of, embeddings_of, keys_of, n_given, n_rows
from tunescope.attachment.bank.biases import uncalled_maps
from tunescope.attachment.bank.hot import Hot
from tunescope.attachment.bank.rowwise import Rowwise
from tunescope.attachment.contexts import entered, moved, refuse_reentrant, tell_call
from tunescope.attachment.embeddings import embeddings_joined
from tunescope.attachment.family_positions import FamilyPositions
from tunescope.attachment.guards.activations import lean_activations
from tunescope.attachment.guards.changes import Watch
from tunescope.attachment.guards.checkpointing import check_stands, recomputed
from tunescope.attachment.guards.compiled import compiled_anew, forward_within, uncompiled
from tunescope.attachment.guards.continuous import one_batch_at_a_time
from tunescope.attachment.guards.four_bit import unpacked
from tunescope.attachment.guards.mamba_kernels import unfused
from tunescope.attachment.guards.marks import check_bare, marked, standing_in
from tunescope.attachment.guards.output_start import check_output_start
from tunescope.attachment.guards.processes import alike
from tunescope.attachment.head_hooks import pooled
from tunescope.attachment.held import Held
from tunescope.attachment.site_hooks import SiteUse, acting, frozen
from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import seen_by, text_of
from tunescope.models.quantised import check_readable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Names = Sequence[str | None]


@dataclass(frozen=True)
class _Asked:
    """What rows take. several: a batch may have several rows in a row for each, as beams have.

    by_call: a call of the model says it, and it goes with that; else it is said for all calls of a block.
    of: whose rows they are; known weakly, for what is asked outlives a call that was broken off.
    """

    entries: tuple[Entry | None, ...]
    several: bool
    by_call: bool
    of: ref[Banked]


_ASKED: ContextVar[tuple[_Asked, ...]] = ContextVar("_ASKED", default=())  # each thread has its own, and each task


class Banked(Held):
    """A model with a bank attached: `model(**batch, rows=[...])` and `model.generate(**batch, rows=[...])`.

    Each row names what it takes of the bank, or None for the bare model. While attached, the base asks for no
    gradients; `parameters()` do, after `train()`: those of artifacts that the bank was given, not of folders.
    """

    takes_turns = True

    def __init__(
        self, model: PreTrainedModel, bank: Bank, tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0
    ) -> None:
        super().__init__(model)
        self.bank = bank
        self._hot = Hot(model, bank, tokenizer, seed)
        self._batch = Batch((), [])
        self._columns: dict[str, int] = {}  # of the text in each stack's last call
        self._acting_for: object = None
        self._uses: list[SiteUse[Rowwise]] = []
        self._acting = ExitStack()
        with suppress(UserError):  # of who asks for a site, when somebody does
            check_readable(model)
            sites_of(model)  # looked for while nothing is attached
            uncalled_maps(model)
        self._enter_or_leave()

    def _enter(self) -> None:
        check_bare(self.model)
        enter = self._stack.enter_context
        enter(marked(self.model, self, wants_output_start=anatomy(self.model).kind == "decoder", in_weights=False))
        enter(alike(self.model, self.named_parameters))
        enter(unpacked(self.model))
        enter(frozen(self.model))
        enter(lean_activations(self.model))
        enter(unfused(self.model))
        enter(switched(self.model))
        enter(one_batch_at_a_time(self.model, "the bank", "model.generate(..., rows=[...])"))
        enter(self._turns.taken([self.model, self.model.base_model, *anatomy(self.model).entries.values()]))
        enter(self._rows_of_calls())
        self._stack.callback(self._rest)
        for name, entry in anatomy(self.model).entries.items():
            enter(self._placed(name, entry))
        if anatomy(self.model).kind != "decoder":
            enter(embeddings_joined(self.model, self._embeddings, by_row=True))
        enter(recomputed(self.model, self._as_now))
        enter(compiled_anew(self.model))

    @contextmanager
    def rows(self, names: Names) -> Iterator[None]:
        """Within it every call by this thread, or asyncio task, takes these; a batch may have several rows for each."""
        self._check_attached("rows()")
        asked = self._ask(names)
        try:
            yield
        finally:
            self._forget(asked)

    @property
    def _asked(self) -> list[_Asked]:
        """What this thread or task has asked for, what is in force last."""
        return [one for one in _ASKED.get() if one.of() is self]

    def _forget(self, asked: _Asked) -> None:
        """This, and what was asked within it and cut short."""
        own = self._asked
        gone = own[next((index for index, one in enumerate(own) if one is asked), len(own)) :]
        _ASKED.set(tuple(one for one in _ASKED.get() if not any(one is other for other in gone)))

    def _ask(self, names: Names, *, by_call: bool = False) -> _Asked:
        if not isinstance(names, Sequence) or isinstance(names, str) or not names:
            raise UserError(f"rows={names!r}: give a list with a name, or None, for each row of the batch.")
        entries = tuple(None if name is None else self.bank.entry(name) for name in names)
        asked = _Asked(entries, several=not by_call, by_call=by_call, of=ref(self))
        _ASKED.set((*_ASKED.get(), asked))
        return asked

    @contextmanager
    def _rows_of_calls(self) -> Iterator[None]:
        """`rows` is read from the call of the model and from that of `generate`, and goes no further."""
        model = self.model

        def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self._hot.making:  # the model is run bare, within a call
                return None
            after()
            if "rows" in kwargs:
                self._ask(kwargs["rows"], by_call=True)
            return args, {name: value for name, value in kwargs.items() if name != "rows"}

        def after(*_: object) -> None:
            told = next((one for one in self._asked if one.by_call), None)  # or a call that an interrupt cut short
            if told is not None and not self._hot.making:
                self._forget(told)

        def generate(*args: Any, rows: Names | None = None, **kwargs: Any) -> Any:
            # all of it is one turn, for where its output starts is told to the model itself
            with self._turns.lock, nullcontext() if rows is None else self.rows(rows):
                if rows is not None and (batch := n_given(args, kwargs)) not in (None, len(rows)):
                    raise UserError(f"rows= names {len(rows)} rows, and the batch has {batch}.")
                return inner(*args, **kwargs)

        handles = [
            model.register_forward_pre_hook(before, with_kwargs=True),
            model.register_forward_hook(after, always_call=True),
        ]
        inner: Any = getattr(model, "generate", None)
        own = {"forward": forward_within(model, uncompiled)}  # hooks change with the rows, which it would not see
        if hasattr(type(model), "generate"):
            own["generate"] = generate
        try:
            with standing_in(model, own):
                yield
        finally:
            after()
            for handle in handles:
                handle.remove()

    @contextmanager
    def _placed(self, stack: str, entry: nn.Module) -> Iterator[None]:
        """Before each pass of a stack its rows get what they ask for; that stays until other rows are asked for."""
        places = {found.name: found.module for found in reached(self.model) if found.name.startswith(f"{stack}.")}
        names = argument_names(entry)
        made: dict[str, Any] = {"for": None, "used": 0}
        watch, own = Watch(entry), FamilyPositions(self.model, entry)
        by_mask = anatomy(self.model).kind == "decoder"

        def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self._hot.making:
                return None
            refuse_reentrant(self.model)
            given = dict(zip(names, args, strict=False)) | kwargs
            batch = self._batch = self._rows(n_rows(given))
            if (text := text_of(given)) is not None:
                self._columns[stack] = text.shape[1]
            begins = not seen_by(given)
            batch.check(self.model, given)
            now = batch.state(begins=begins)
            reads_base = batch.reads_base()
            base = watch.trace((), begins=begins) if reads_base else None
            if now is None or (reads_base and base is None) or (now, base) != made["for"]:
                if not batch.has_keys(stack, base):
                    self._rest()
                extras, made["used"] = keys_of(self.model, batch, stack, places, base)
                for name, module in places.items():
                    module.__dict__[STATE].extras = extras[name]
                made["for"] = (now, base)
            if now is None or now != self._acting_for:
                self._act(batch)
                self._acting_for = now
            if any(rows := batch.has_contexts()) or by_mask:  # or a row would depend on who is beside it
                given = moved(self.model, own.counted(given), made["used"], names, rows)
            self._tell_states(places, given)
            return (), given

        with own.noted(), entered(entry, enter, places):
            yield

    def _rows(self, batch: int) -> Batch:
        """The artifacts of each row of a batch of that size. Raises UserError where the names do not say."""
        if not self._asked:
            raise UserError(
                "This model has a bank attached, so every call says what each row takes: rows=['NAME', None, ...]."
            )
        asked = self._asked[-1]
        times, over = divmod(batch, len(asked.entries))
        if over or (times != 1 and not asked.several):
            raise UserError(f"rows= names {len(asked.entries)} rows, and the batch has {batch}.")
        entries = tuple(entry for entry in asked.entries for _ in range(times))
        distinct = list(dict.fromkeys(entry for entry in entries if entry is not None))
        if self._hot.lacks(distinct):
            self._rest()
        return Batch(entries, list(zip(distinct, self._hot.get(distinct), strict=True)))

    def _embeddings(self) -> tuple[Tensor, Tensor | None] | None:
        return None if self._hot.making else embeddings_of(self.model, self._batch)

    def _tell_states(self, places: dict[str, nn.Module], given: dict[str, Any]) -> None:
        states = [module.__dict__[STATE] for module in places.values()]
        tell_call(self.model, given, states)
        if any(extra.infix for state in states for extra in state.extras):
            trains = any(ready.is_tuned() for _, ready in self._batch.members)
            check_output_start(self.model, given, trains=trains)

    def _act(self, batch: Batch) -> None:
        self._check_attached("a call")  # or what acts now would stay
        self._rest()
        self._uses, head = deltas_of(self.model, batch, lambda: min(self._columns.values(), default=1))
        self._acting.enter_context(acting(self._uses, self._drops))
        if head is not None:
            self._acting.enter_context(pooled(self.model, head.spec, head.tensors))
        self._turns.end_last()

    def _as_now(self) -> Callable[[], None]:
        """Called later, the deltas that act now act again: see `recomputed`. The next pass puts its own in place."""
        uses = self._uses

        def again() -> None:
            check_stands(self.model, self)
            if self._turns.is_of_another():
                raise UserError(
                    "Gradient checkpointing computes layers again in the backward pass, and meanwhile another thread "
                    "calls the same model, with a bank attached: train it in one thread, while no other calls it."
                )
            if self._uses is not uses:
                self._rest()
                self._uses = uses
                self._acting.enter_context(acting(uses, self._drops))

        return again

    def _rest(self) -> None:
        """No delta acts."""
        self._acting.close()
        self._acting_for, self._uses = None, []

    def artifacts(self, name: str) -> tuple[Artifact, ...]:
        """What stands under a name, as it acts here: the tensors that are trained are these."""
        with self._turns.lock:
            return self._hot.get([self.bank.entry(name)])[0].artifacts

    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise of what the bank was given, by "NAME/INDEX.TENSOR"."""
        with self._turns.lock:
            given = list(self._hot.given())
        return {
            f"{name}/{index}.{key}": value
            for name, ready in given
            for index, artifact in enumerate(ready.artifacts)
            for key, value in artifact.tensors.items()
            if value.is_floating_point() and not artifact.spec.bound and artifact.in_force is None
        }

    def _check_trains(self) -> None:
        """All can: what was lowered is not among the parameters."""
