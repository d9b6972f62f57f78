"""What a model refuses while changed parameters stand in it: to load into them, and other embeddings in their place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from torch import Tensor, nn

from tunescope.attachment.guards.marks import standing_in
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import REGISTERED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PUT_EMBEDDINGS = ("resize_token_embeddings", "set_input_embeddings", "set_output_embeddings", "tie_weights")


@contextmanager
def kept(model: PreTrainedModel, modules: Collection[nn.Module], told: str, anew: Callable[[], None]) -> Iterator[None]:
    """Within it the model and its base refuse both, before anything is changed.

    A state dict with what is `registered` in it loads as a whole: what is changed in it is made anew of the rest.

    modules: whose parameters stand changed. told: what changes them. anew: makes them anew.
    """

    def refuse(name: str, /, *_: object, **__: object) -> NoReturn:
        raise UserError(
            f"{name}: in this {type(model).__name__} parameters stand changed by {told}, and what is put in their "
            f"place now would be lost. detach(), {name}, and attach again."
        )

    def before(module: nn.Module, state: Mapping[str, Tensor], prefix: str, *_: object) -> None:
        own = f"{prefix}{REGISTERED}."
        is_within = module is not model and prefix  # of a load that another has let through
        if not is_within and not (REGISTERED in module._modules and any(name.startswith(own) for name in state)):
            refuse("load_state_dict")

    with ExitStack() as stack:
        for module in dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()]):
            stack.callback(module.register_load_state_dict_pre_hook(before).remove)
        stack.callback(model.register_load_state_dict_post_hook(lambda *_: anew()).remove)
        if _has_embeddings(model, modules):
            for one in dict.fromkeys((model, model.base_model)):
                stack.enter_context(standing_in(one, {name: partial(refuse, name) for name in PUT_EMBEDDINGS}))
        yield


def _has_embeddings(model: PreTrainedModel, modules: Collection[nn.Module]) -> bool:
    head = model.get_output_embeddings()
    return any(isinstance(module, nn.Embedding) or module is head for module in modules)
