"""What a transformers model is made of: its kind, where inputs enter, its embeddings, its sites. Found out once."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from tunescope.errors import UserError
from tunescope.models.family import find_family
from tunescope.models.fingerprint import REGISTERED
from tunescope.models.split import plain_type

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class _Part(NamedTuple):
    """A module of the model as it was: the shape of its weight, and its children by name."""

    module: weakref.ref[nn.Module]
    shape: object
    children: tuple[tuple[str, Callable[[], nn.Module | None]], ...]


@dataclass(frozen=True, eq=False)
class Anatomy:
    """What `anatomy(model)` knows; each part is found when it is first asked for. It holds no module of the model.

    kind: "decoder", "encoder" or "encoder-decoder".
    """

    kind: str
    of: weakref.ref[Any]
    _says: tuple[object, ...]
    _parts: tuple[_Part, ...]

    @property
    def entries(self) -> dict[str, Any]:
        """Where text enters: stack -> the module that embeds it."""
        return {name: _held(module) for name, module in self._entries.items()}

    @cached_property
    def _entries(self) -> dict[str, weakref.ref[Any]]:
        model = _held(self.of)
        base = model.base_model
        if model.config.is_encoder_decoder:
            return {"encoder": weakref.ref(base.get_encoder()), "decoder": weakref.ref(base.get_decoder())}
        return {self.kind: weakref.ref(base.get_decoder() if self.kind == "decoder" else base)}

    @property
    def table(self) -> Any:
        """The module that embeds tokens; None where the family has none, as one of characters or of sound."""
        found = None if self._table is None else self._table()
        return input_embeddings(_held(self.of)) if found is None else found

    @cached_property
    def _table(self) -> weakref.ref[Any] | None:
        found = input_embeddings(_held(self.of))
        return None if found is None else weakref.ref(found)

    @property
    def device(self) -> torch.device:
        """Where the model's inputs are, now: a model may be moved."""
        return self.weight.device

    @property
    def weight(self) -> torch.Tensor:
        """That of the embeddings, whose type the inputs have; where no tokens are embedded, the model's first."""
        found = getattr(self.table, "weight", None)
        weight: torch.Tensor = next(_held(self.of).parameters()) if found is None else found
        return weight

    def stands(self, model: object) -> bool:
        """Whether the model is still what it was: what its config says, its modules, the shapes of their weights."""
        return self._says == _says(model) and _stand(self._parts)


_KNOWN: weakref.WeakKeyDictionary[Any, Anatomy] = weakref.WeakKeyDictionary()


def anatomy(model: PreTrainedModel) -> Anatomy:
    """What the model is made of. The same object for the same model, until that is another than it was.

    It is another where a module of it is replaced, added or gone, where a weight has another shape, or where its config
    says another kind. What is registered while it is tuned does not count.
    """
    known = _KNOWN.get(model)
    if known is None or not known.stands(model):
        known = Anatomy(kind(model), weakref.ref(model), _says(model), tuple(_parts(model)))
        _KNOWN[model] = known
    return known


def _held(module: weakref.ref[Any]) -> Any:
    found = module()
    assert found is not None  # who asks for it holds the model
    return found


def _says(model: PreTrainedModel) -> tuple[object, ...]:
    """What `kind` reads of the config."""
    config = model.config
    named = tuple(config.architectures or ())
    told = (getattr(config, "is_decoder", False), getattr(config, "causal", None))
    return plain_type(model), config.model_type, config.is_encoder_decoder, told, named


def _parts(model: nn.Module) -> Iterator[_Part]:
    """Every module that can be replaced, from the model on; what is in torchscript cannot."""
    known, todo = {id(model)}, [model]
    while todo:
        module = todo.pop()
        children = [(name, one) for name, one in module._modules.items() if name != REGISTERED]
        held = tuple((name, _nothing if one is None else weakref.ref(one)) for name, one in children)
        yield _Part(weakref.ref(module), _shape(module), held)
        for _, one in children:
            if one is not None and id(one) not in known and not isinstance(one, torch.jit.ScriptModule):
                known.add(id(one))
                todo.append(one)


def _stand(parts: tuple[_Part, ...]) -> bool:
    """Whether all are as they were. It is asked at every turn, of some thirteen modules a layer: one plain loop."""
    for held, shape, children in parts:
        module = held()
        if module is None:
            return False
        weight = module._parameters.get("weight")
        if (None if weight is None else weight.shape) != shape:
            return False
        now = module._modules
        if now or children:
            if len(now) - (REGISTERED in now) != len(children):
                return False
            for name, child in children:
                if now.get(name) is not child():
                    return False
    return True


def _nothing() -> None:
    """In the place of a child that is None."""


def _shape(module: nn.Module) -> object:
    weight = module._parameters.get("weight")
    return None if weight is None else weight.shape


def argument_names(module: nn.Module) -> list[str]:
    """The names under which a module's forward takes its positional arguments."""
    return [name for name in inspect.signature(module.forward).parameters if name != "self"]


def input_embeddings(model: PreTrainedModel) -> Any:
    """What transformers says embeds a model's tokens; None where it knows nothing."""
    try:
        return model.get_input_embeddings()
    except NotImplementedError:
        return None


CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel")
WRITES = (*CAUSAL_HEADS, "ForConditionalGeneration")  # as a model of text and pictures is named
# Their heads are named as a decoder's, and look both ways unless the config says `causal`: XLNet learned to write in
# any order (Yang et al. 2019), XLM to fill masks (Conneau and Lample 2019).
LOOK_AHEAD = ("xlnet", "xlm", "flaubert")


def kind(model: PreTrainedModel | PreTrainedConfig) -> str:
    """ "decoder", "encoder" or "encoder-decoder", for a model or a config, mapped family or not: for a config alone.

    Of a model, ask `anatomy(model).kind`. The half of an encoder-decoder that stands alone is what it is.
    """
    config = getattr(model, "config", model)
    if config.is_encoder_decoder:
        return "encoder-decoder"
    family = find_family(config.model_type)
    if family is not None and family.kind == "encoder-decoder":
        return "decoder" if config.is_decoder else "encoder"
    if family is not None:
        return "decoder" if _is_told_to_decode(config) else family.kind
    if config.model_type in LOOK_AHEAD:
        return "decoder" if getattr(config, "causal", False) else "encoder"
    named = [type(model).__name__, *(config.architectures or [])]
    if any(name.endswith(CAUSAL_HEADS) for name in named):
        return "decoder"
    looks_back = _looks_back(model) if isinstance(model, nn.Module) else _is_of_decoders(config)
    return "decoder" if looks_back else "encoder"


def _is_told_to_decode(config: PreTrainedConfig) -> bool:
    """Whether the config of a BERT and its kin makes a decoder of it; DistilBERT, which never is one, reads none."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return bool(getattr(config, "is_decoder", False)) and config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def _looks_back(model: PreTrainedModel) -> bool:
    """Whether it is a decoder without its head: its attention says so, or, where that says nothing, its family."""
    if plain_type(model).__name__.endswith(WRITES):
        return True
    told = [module.is_causal for module in model.modules() if hasattr(module, "is_causal")]
    return any(one is True for one in told) if told else _only_writes(model.config.model_type)


def _is_of_decoders(config: PreTrainedConfig) -> bool:
    """Whether a config alone makes a decoder: its family writes, and it says nothing against that.

    BERT's encoder for generation (Rothe et al. 2020) has to say that it decodes, and a Gemma may look both ways.
    """
    if getattr(config.get_text_config(), "use_bidirectional_attention", None) in (True, "all"):
        return False
    return _is_told_to_decode(config) or (config.model_type != "bert-generation" and _only_writes(config.model_type))


def _only_writes(model_type: str) -> bool:
    """Whether transformers has a causal model of the family and no masked one."""
    from transformers.models.auto import modeling_auto

    masked, causal = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return model_type in causal and model_type not in masked


def refuse_half(model: PreTrainedModel, kind: str) -> None:
    """UserError for the decoder of an encoder-decoder that stands alone, whose cross attention rests."""
    family = find_family(model.config.model_type)
    if family is not None and family.kind == "encoder-decoder" and kind == "decoder":
        raise UserError(
            f"A {type(model).__name__} is the decoder of an encoder-decoder alone, which is not mapped: load the whole "
            "model, with AutoModelForSeq2SeqLM. Bias and full can be attached to it as it is."
        )
