"""Serve the context in this folder by vLLM: a KV connector, and what asks. NOT RUN ON A GPU where it was written.

Start:  PYTHONPATH=THIS_FOLDER vllm serve MODEL --kv-transfer-config '{"kv_connector": "ContextConnector",
            "kv_connector_module_path": "vllm_context", "kv_role": "kv_consumer"}'
Ask:    python vllm_context.py URL MODEL TEXT

A prompt that begins with STAND_INS is not computed there: its first keys and values are those of `keys.npy` and
`values.npy`, rotated as vLLM keeps them. Needs numpy, and vLLM with the v1 interface (KVConnectorBase_V1) to serve.
"""

import json
import pathlib
import re
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import numpy as np

try:
    import torch
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
except ImportError:  # where it only asks
    KVConnectorBase_V1, KVConnectorMetadata = object, object

Ids = tuple[int, ...]
STAND_INS: Ids = ()  # one for each of the context's positions; no other context has the same
START: Ids = ()  # between the context and a text
LAYER = re.compile(r"\blayers\.(\d+)\.")  # in the names of vLLM's attention layers


@dataclass
class Load:
    """Where the positions from `first` on lie: the blocks of the request, as many slots in each."""

    first: int
    blocks: list[int]


@dataclass
class Loads(KVConnectorMetadata):
    """What the scheduler tells the workers for one step."""

    loads: list[Load] = field(default_factory=list)


class ContextConnector(KVConnectorBase_V1):
    """Gives prompts that begin with STAND_INS the context's keys and values; it saves none."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        """kv_cache_config: which newer versions hand on."""
        super().__init__(vllm_config, role, *([] if kv_cache_config is None else [kv_cache_config]))
        self.size = int(vllm_config.cache_config.block_size)
        self.waiting: dict[str, Load] = {}
        self.caches: dict[str, Any] = {}
        self.made: dict[tuple[int, str], Any] = {}
        folder = pathlib.Path(__file__).parent
        self.keys, self.values = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("keys", "values"))

    # of the scheduler

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens behind those that vLLM has already need no computing, and that they come at once."""
        return max(0, matched(request.prompt_token_ids) - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Keep for the next step where the request's blocks are; called again where it was preempted."""
        if num_external_tokens > 0:
            first = matched(request.prompt_token_ids) - num_external_tokens
            self.waiting[request.request_id] = Load(first, list(blocks.get_block_ids()[0]))

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        """What is to be loaded in this step."""
        loads, self.waiting = list(self.waiting.values()), {}
        return Loads(loads)

    # of a worker

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Layer -> its pages [2, num_blocks, block_size, kv_heads, head_dim]; RuntimeError for another layout."""
        n_heads, width = self.keys.shape[2:]
        for name, cache in kv_caches.items():
            shape = tuple(cache.shape)
            if len(shape) != 5 or shape[0] != 2 or shape[2:] != (self.size, n_heads, width):
                raise RuntimeError(
                    f"{name} has pages {shape}, and the context needs (2, blocks, {self.size}, {n_heads}, {width}): "
                    "serve it on one GPU, with VLLM_ATTENTION_BACKEND=FLASH_ATTN."
                )
            if not cache.is_floating_point() or cache.element_size() < 2:
                raise RuntimeError(f"{name} is quantised ({cache.dtype}). Leave --kv-cache-dtype out.")
            if layer(name) >= len(self.keys):
                raise RuntimeError(f"{name}: the context is of a model with {len(self.keys)} layers.")
        self.caches = dict(kv_caches)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Write the context's keys and values into the pages, before the pass."""
        for load in self._get_connector_metadata().loads:
            for name, cache in self.caches.items():
                places = [divmod(position, self.size) for position in range(load.first, len(STAND_INS))]
                blocks = torch.tensor([load.blocks[block] for block, _ in places], device=cache.device)
                slots = torch.tensor([slot for _, slot in places], device=cache.device)
                for side, made in enumerate((self.keys, self.values)):
                    cache[side][blocks, slots] = self._tensor(made, name, cache)[load.first :]

    def _tensor(self, made: Any, name: str, cache: Any) -> Any:
        """(n, kv_heads, head_dim) of one layer, as its pages have numbers, made once."""
        key = (id(made), name)
        if key not in self.made:
            self.made[key] = torch.from_numpy(made[layer(name)]).to(cache.device, cache.dtype)
        return self.made[key]

    def wait_for_layer_load(self, layer_name: str) -> None:
        """All is there when `start_load_kv` returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""


def matched(prompt: list[int] | None) -> int:
    """How many tokens at the prompt's beginning stand for the context; 0 where no text follows them."""
    n = len(STAND_INS)
    return n if prompt is not None and len(prompt) > n and tuple(prompt[:n]) == STAND_INS else 0


def layer(name: str) -> int:
    """The number in "model.layers.7.self_attn.attn"."""
    found = LAYER.search(name)
    if found is None:
        raise RuntimeError(f"{name} is no layer that a context is known for.")
    return int(found[1])


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    """The server's answer, as JSON."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def ask(url: str, model: str, text: str | list[int], **options: Any) -> Any:
    """The server's completion of a text, or of its ids, behind the context."""
    if isinstance(text, str):
        text = post(url, "/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})["tokens"]
    return post(url, "/v1/completions", {"model": model, "prompt": [*STAND_INS, *START, *text], **options})


if __name__ == "__main__":
    url, model, text = sys.argv[1:]
    print(ask(url, model, text, max_tokens=64, temperature=0)["choices"][0]["text"])
