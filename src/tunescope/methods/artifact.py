"""What tuning makes: a spec (a frozen dataclass) and its tensors (a flat dict). Contexts and deltas, and nothing else.

A *context* occupies key positions: something the frozen model is given to attend to. A *delta* never does: it changes
what passes a site, a parameter, or how strongly a context is attended to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tunescope.methods.form import Form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Params = dict[str, Tensor]
KeysValues = dict[str, tuple[Tensor, Tensor]]
Project = Callable[[str, Tensor], tuple[Tensor, Tensor]]  # module name, inputs (n, width) -> its key and value of them
ALL_LINEAR = "all-linear"  # among a delta's sites: every linear map of the base model


class SiteShape(NamedTuple):
    """Widths of what a delta reads and of what it changes, the number of attention heads (1 off attention), and whether
    a weight's change may have one of a bias beside it: False for a linear map without one."""

    d_in: int
    d_out: int
    n_heads: int
    has_bias: bool = True


class LayerShape(NamedTuple):
    """Keys (kv_heads, n, d_key) and values (kv_heads, n, d_value) of one attention module."""

    kv_heads: int
    d_key: int
    d_value: int


@dataclass(frozen=True)
class Base:
    """What a context may know of the model that it is made for."""

    kind: str  # "decoder" | "encoder" | "encoder-decoder"
    width: int  # of a token's embedding
    layers: Mapping[str, LayerShape]  # "decoder.0.self" -> shape, in order of depth
    embed: Callable[[Tensor], Tensor]  # ids (n,) -> (n, width), at the scale the model's first layer sees
    keys_values: Callable[[Tensor], KeysValues]  # ids (n,) -> what every attention module makes of them
    input_width: Callable[[str], int]  # of what an attention module makes its keys and values from, by its name
    vocabulary: int
    positions: int | None = None  # the most that a text may take; None: no limit known
    rotary: bool = False  # a text that starts further on is the same to it: its positions count as differences alone
    tokenizer: PreTrainedTokenizerBase | None = None


class Counted(NamedTuple):
    """What the cost model (`tunescope.theory.costs`) counts a method as: its kind there, its size and its sites."""

    kind: str
    size: int = 0
    sites: tuple[str, ...] = ()


class Spec(ABC):
    """A method's hyper-parameters: what the user types. Abstract; a method is one frozen dataclass in its own file."""

    size: ClassVar[str | None] = None  # the field that a budget sets
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-4, 1e-3, 1e-2)  # its grid in `compare`
    bound: ClassVar[bool] = False  # True: the model makes its tensors; they are bound to what is in force, not trained
    shows_rows: ClassVar[bool] = False  # True: it may begin as solved rows: init_from="demos", and text
    decides_keys: ClassVar[bool] = True  # False: the keys and values of the text are the same without it
    whole_numbers: ClassVar[tuple[str, ...]] = ()  # its tensors that are of them, as ids are; others are of floats
    served_as: ClassVar[str] = ""  # the format of `tunescope export` that servers of others take; "": none has a place
    whole_model: ClassVar[bool] = False  # True: with it the model is another one, which no row of a batch has to itself

    @property
    def fresh_is_identity(self) -> bool:
        """Whether attaching it untrained changes nothing, to the bit."""
        return True

    @property
    def formula(self) -> Form | None:
        """What it adds, where and how; None for what no formula at one place says (full tuning, for one)."""
        return None

    @property
    def counted(self) -> Counted | None:
        """What the cost model counts it as; None where that has no formula for it."""
        return None


class SiteDelta(Spec):
    """A delta that acts on what passes a site: two pure functions over its tensors."""

    sites: tuple[str, ...]

    @property
    def reads(self) -> str:
        """Which tensor is handed to `apply` as x.

        "input" of the site; the layer's "query"; of a head the model's "pooler", the text's "last token" or "every
        token"; the residual "stream", as the block's residual
        connection adds it to h, or the "stream behind" that connection, normed where the model has a norm there.
        """
        return "input"

    @abstractmethod
    def init(self, shape: SiteShape) -> Params:
        """Fresh tensors for one site, drawn from torch's global generator."""

    @abstractmethod
    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        """x (..., d_in) enters the site and h (..., d_out) leaves it -> (..., d_out)."""

    def apply_by_row(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        """`apply` with tensors of their own for each row: p (rows, ...), x (rows, n, d_in), h (rows, n, d_out)."""
        made: Tensor = torch.func.vmap(self.apply, randomness="different")(p, x, h)
        return made

    def padded(self, p: Params, size: int) -> tuple[SiteDelta, Params]:
        """The same function with `size` at least as large, zeros in what is new, so that several can be stacked.

        A method that has no such form gives itself back, and is stacked with those of its own size.
        """
        return self, p

    def weight_change(self, p: Params) -> Tensor | None:
        """(d_out, d_in) to add to the frozen weight for the same map; None where no such matrix exists."""
        return None

    def row_change(self, p: Params) -> tuple[Tensor, Tensor] | None:
        """(d_out,) to multiply the frozen weight's rows and its bias with first, and (d_out,) to add to the bias."""
        return None


class PatchDelta(Spec):
    """A delta that changes parameters by name, for what has no site."""

    only: tuple[str, ...] = ()  # patterns, each of which is to be the name of some parameter; none: what `selects` says
    rows: tuple[int, ...] = ()  # of each parameter these rows alone, which its tensors then are; none: all

    @abstractmethod
    def selects(self, name: str) -> bool:
        """Whether it changes the parameter of that name."""

    def init(self, parameters: Mapping[str, Tensor]) -> Params:
        """One zero change for every selected parameter."""
        return {name: torch.zeros_like(value, requires_grad=False) for name, value in parameters.items()}

    def patch(self, p: Params) -> Params:
        """Parameter name -> change, to be added."""
        return p


class AttentionDelta(Spec):
    """A delta of how the output attends to single tokens of the context in front of it.

    A third form, for the other two cannot say it: attention passes no site, being made and used up within one
    function, and no parameter holds it. It knows no model: it is handed the attention on its columns, and gives it
    back.

    anchors: for each demonstration in that context, the positions of its label word there: "7", or "15/16" for a word
        of two tokens.
    """

    decides_keys: ClassVar[bool] = False  # it acts on the output

    anchors: tuple[str, ...]

    @property
    @abstractmethod
    def changes(self) -> Literal["scores", "weights"]:
        """What it is handed and gives back: the scores before the softmax, or the weights after it."""

    @abstractmethod
    def columns(self) -> tuple[int, ...]:
        """The positions in the context that it acts on, all different. Raises UserError where they cannot be read."""

    @abstractmethod
    def init(self, n_heads: int) -> Params:
        """Fresh tensors for one attention module with that many query heads."""

    @abstractmethod
    def apply(self, p: Params, attention: Tensor) -> Tensor:
        """(batch, heads, query, len(columns())) of one attention module -> the same, changed."""

    @abstractmethod
    def rests(self, p: Params) -> bool:
        """Whether it changes nothing with these tensors, of one attention module."""


class Context(Spec):
    """Something that stands before (or inside) the text and is attended to."""

    reads_base: ClassVar[bool] = True  # the base makes its keys and values, which are made anew where that changed

    @property
    def fresh_is_identity(self) -> bool:
        return False

    @abstractmethod
    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor it trains, without making any."""

    @abstractmethod
    def init(self, base: Base) -> Params:
        """Fresh tensors of exactly those shapes."""

    def settled(self, base: Base) -> Context:
        """The spec with what it leaves to the model said."""
        return self

    def folded(self) -> Context:
        """The spec under which its tensors are stored for inference."""
        return self

    def fold(self, p: Params) -> Params:
        """The tensors to store for inference, for `folded()`."""
        return p


class TokenContext(Context):
    """A context that stands among the tokens: it runs at the embedding level, or lowered where that is exact."""

    @abstractmethod
    def embeddings(self, p: Params, embed: Callable[[Tensor], Tensor]) -> Tensor:
        """(n, width), in the place of n tokens' embeddings."""


class KVContext(Context):
    """A context of free keys and values, one pair for every attention module it reaches."""

    infix: ClassVar[bool] = False  # seen only by what follows the input
    positions: str | None = "same"

    @abstractmethod
    def keys_values(self, p: Params, stack: str, project: Project) -> KeysValues:
        """ "decoder.0.self" -> (kv_heads, n, d_key), (kv_heads, n, d_value), for the modules of one stack."""

    def reach(self, n_keys: int) -> int:
        """How many positions further on the text begins that follows."""
        return n_keys if self.positions == "after" else 0

    def standing(self, n_keys: int) -> Tensor:
        """(n_keys,), where keys that the model made stand, counted from where this context begins."""
        return torch.arange(n_keys)


@dataclass(repr=False)
class Artifact:
    """A spec with its tensors: what is trained, saved, loaded and attached.

    spec: the method and its hyper-parameters. tensors: name -> tensor; which there are, and their shapes, says the
    method's own docstring.
    tokenizer: hash of the tokenizer it was made with; None where that is not known.
    base: fingerprint of the weights it was made for; None until it is saved, or merged into them.
    in_force: for lowered keys and values, the fingerprint of all that was attached when they were made.
    places: of a delta's sites, where they lay in the model that it was saved with; None until it is saved.
    head: hash of the model's own head that it was saved on and does not hold; None where there was none.
    """

    spec: Spec
    tensors: Params
    base: str | None = None
    tokenizer: str | None = None
    in_force: str | None = None
    places: Mapping[str, str] | None = None
    head: str | None = None

    def __repr__(self) -> str:
        values = sum(value.numel() for value in self.tensors.values())
        return f"<Artifact {self.spec}: {values:,} values in {len(self.tensors)} tensors>"

    def fold(self) -> Artifact:
        """The form to store for inference: without the network that only trains (Li & Liang's MLP)."""
        if not isinstance(self.spec, Context):
            return self
        tensors = {name: value.detach().clone() for name, value in self.spec.fold(self.tensors).items()}
        return replace(self, spec=self.spec.folded(), tensors=tensors)
