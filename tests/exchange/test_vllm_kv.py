"""A context in vLLM's pages: its connector against a literal stub of its v1 interface, transformers as the oracle."""

import enum
import importlib.util
import random
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_llama_slot import SPECS, model_of, tuned_of
from tiny_gguf import words
from tokenizers.processors import TemplateProcessing
from transformers import DynamicCache

import tunescope as ts
from tunescope.errors import UserError
from tunescope.exchange import convert

BLOCK, BLOCKS = 4, 23


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata(ABC):
    """vllm.distributed.kv_transfer.kv_connector.v1.base, as of 0.11: the names, the arguments, what is abstract."""


class KVConnectorBase_V1(ABC):  # noqa: N801
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        self._connector_metadata: Any = None
        self._vllm_config, self._role, self.handed_on = vllm_config, role, kv_cache_config

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self) -> None:
        self._connector_metadata = None

    def _get_connector_metadata(self) -> KVConnectorMetadata:
        assert self._connector_metadata is not None
        return self._connector_metadata  # type: ignore[no-any-return]

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        return

    @abstractmethod
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def wait_for_layer_load(self, layer_name: str) -> None: ...

    @abstractmethod
    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def wait_for_save(self) -> None: ...

    @abstractmethod
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]: ...

    @abstractmethod
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None: ...

    @abstractmethod
    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata: ...


@dataclass
class Request:
    request_id: str
    prompt_token_ids: list[int] | None


@dataclass
class KVCacheBlocks:
    ids: list[int]

    def get_block_ids(self) -> tuple[list[int], ...]:
        return (self.ids,)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub in the place of the package."""
    name = "vllm.distributed.kv_transfer.kv_connector.v1.base"
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    for one in (KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole):
        setattr(sys.modules[name], one.__name__, one)


def client_of(folder: Path) -> Any:
    """The module that lies in the folder, as `kv_connector_module_path` has it imported."""
    spec = importlib.util.spec_from_file_location(
        f"vllm_context_{folder.name.replace(' ', '_')}", folder / "vllm_context.py"
    )
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # which dataclasses look up
    spec.loader.exec_module(made)
    return made


def config() -> Any:
    return types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=BLOCK))


def exported(folder: Path, specs: list[Any], name: str = "llama") -> tuple[Any, Any, list[Any]]:
    """(the client, the model, its artifacts)"""
    model = model_of(name)
    artifacts = tuned_of(model, specs)
    done = convert.export(folder, artifacts, to="vllm_kv", model=model, tokenizer=words())
    assert done.difference < 2e-6 and "not run on a GPU" in done.serves
    assert any("not run on a GPU here" in note for note in done.notes)
    return client_of(folder), model, artifacts


def pages(model: Any, dtype: torch.dtype = torch.float64, heads: int = 2) -> dict[str, torch.Tensor]:
    """Layer -> what other requests have left in its pages."""
    draw = torch.Generator().manual_seed(1)
    names = [f"model.layers.{layer}.self_attn.attn" for layer in range(model.config.num_hidden_layers)]
    return {one: torch.randn(2, BLOCKS, BLOCK, heads, 16, generator=draw, dtype=dtype) for one in names}


def step(client: Any, asked: list[tuple[Request, int, list[int]]], caches: dict[str, torch.Tensor]) -> list[int]:
    """One step as the engine takes it; tokens that were matched. asked: request, computed tokens, its blocks."""
    scheduler = client.ContextConnector(config(), KVConnectorRole.SCHEDULER)
    worker = client.ContextConnector(vllm_config=config(), role=KVConnectorRole.WORKER)
    worker.register_kv_caches(caches)
    found = []
    for request, computed, blocks in asked:
        count, is_later = scheduler.get_num_new_matched_tokens(request, computed)
        assert not is_later
        scheduler.update_state_after_alloc(request, KVCacheBlocks(blocks), count)
        found.append(count)
    worker.bind_connector_metadata(scheduler.build_connector_meta(types.SimpleNamespace()))
    worker.start_load_kv(types.SimpleNamespace())
    for name, cache in caches.items():
        worker.wait_for_layer_load(name)
        worker.save_kv_layer(name, cache, None)
    worker.wait_for_save()
    worker.clear_connector_metadata()
    assert not scheduler.build_connector_meta(types.SimpleNamespace()).loads  # each once
    return found


def behind(model: Any, caches: dict[str, torch.Tensor], blocks: list[int], n: int, ids: list[int]) -> torch.Tensor:
    """Logits of a text whose first n keys and values are read from the pages, as paged attention reads them."""
    cache = DynamicCache()
    for layer, page in enumerate(caches.values()):
        slots = [(blocks[position // BLOCK], position % BLOCK) for position in range(n)]
        key, value = (torch.stack([page[side, block, slot] for block, slot in slots], 1)[None] for side in (0, 1))
        cache.update(key, value, layer)
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), past_key_values=cache).logits[0]


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.parametrize("case", SPECS)
def test_a_text_behind_the_pages_reads_as_the_tuned_model_does(
    vllm: None, case: str, name: str, tmp_path: Path
) -> None:
    client, model, artifacts = exported(tmp_path / "out", SPECS[case], name)
    n, text = len(client.STAND_INS), [7, 9, 30, 11, 12]
    prompt = [*client.STAND_INS, *client.START, *text]
    blocks = random.Random(0).sample(range(BLOCKS), -(-len(prompt) // BLOCK))
    caches = pages(model)
    before = {one: value.clone() for one, value in caches.items()}
    assert step(client, [(Request("a", prompt), 0, blocks)], caches) == [n]
    with ts.attach(model, *artifacts, tokenizer=words()), torch.no_grad():
        wanted = model(input_ids=torch.tensor([[*client.START, *text]])).logits[0]
    got = behind(model, caches, blocks, n, [*client.START, *text])
    assert (got - wanted).abs().max() <= 2e-6 * wanted.abs().max()
    mine = {(blocks[position // BLOCK], position % BLOCK) for position in range(n)}
    for one, cache in caches.items():
        changed = (cache != before[one]).flatten(3).any(-1).nonzero().tolist()
        assert {(block, slot) for _, block, slot in changed} == mine  # nobody else's


def test_what_the_server_has_is_not_loaded_again_and_other_prompts_not_at_all(vllm: None, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=6)])
    stand_ins = list(client.STAND_INS)
    caches = pages(model)
    before = {one: value.clone() for one, value in caches.items()}
    asked = [
        (Request("cached", [*stand_ins, 7, 8]), 4, [5, 6]),  # vLLM has the first block
        (Request("all", [*stand_ins, 7, 8, 9]), 8, [7, 8, 9]),
        (Request("other", [*stand_ins[:5], stand_ins[5] + 1, 7]), 0, [10, 11]),
        (Request("no text", stand_ins), 0, [12, 13]),
        (Request("embeddings", None), 0, [14]),
    ]
    assert step(client, asked, caches) == [2, 0, 0, 0, 0]
    for one, cache in caches.items():
        changed = (cache != before[one]).flatten(3).any(-1).any(0).nonzero().tolist()
        assert changed == [[6, 0], [6, 1]]
    whole = pages(model)
    step(client, [(Request("new", [*stand_ins, 7]), 0, [5, 6])], whole)
    assert all(torch.equal(cache[:, 6, :2], whole[one][:, 6, :2]) for one, cache in caches.items())


def test_several_requests_of_a_step_have_their_own_blocks(vllm: None, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=5)])
    caches, prompt = pages(model), [*client.STAND_INS, 7]
    assert step(client, [(Request("a", prompt), 0, [3, 1]), (Request("b", prompt), 0, [8, 2])], caches) == [5, 5]
    for cache in caches.values():
        assert torch.equal(cache[:, 3], cache[:, 8]) and torch.equal(cache[:, 1, 0], cache[:, 2, 0])
        assert not torch.equal(cache[:, 1, 1], cache[:, 2, 1])


def test_newer_versions_hand_a_third_argument_on(vllm: None, tmp_path: Path) -> None:
    client, _, _ = exported(tmp_path / "out", [ts.Prefix(length=2)])
    assert client.ContextConnector(config(), KVConnectorRole.WORKER, kv_cache_config="groups").handed_on == "groups"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heads": 1}, r"model\.layers\.0\..* has pages .*: serve it on one GPU"),
        ({"dtype": torch.float8_e4m3fn}, r"is quantised \(torch\.float8_e4m3fn\)\. Leave --kv-cache-dtype out\.$"),
    ],
)
def test_pages_of_another_form_stop_the_server(vllm: None, change: Any, said: str, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=2)])
    caches = {
        one: page.to(change.get("dtype", page.dtype))
        for one, page in pages(model, heads=change.get("heads", 2)).items()
    }
    with pytest.raises(RuntimeError, match=said):
        client.ContextConnector(config(), KVConnectorRole.WORKER).register_kv_caches(caches)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda page: page.transpose(0, 1), r"model\.layers\.0\..* has pages \(23, 2, 4, 2, 16\)"),  # FlashInfer's
        (lambda page: page[:, :, :2], r"has pages \(2, 23, 2, 2, 16\), and the context needs \(2, blocks, 4, 2, 16\)"),
        (lambda page: page[..., :8], r"has pages \(2, 23, 4, 2, 8\)"),
        (lambda page: page[0], r"has pages \(23, 4, 2, 16\)"),
    ],
)
def test_pages_laid_out_otherwise_stop_the_server(vllm: None, change: Any, said: str, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=2)])
    caches = {one: change(page) for one, page in pages(model).items()}
    with pytest.raises(RuntimeError, match=said):
        client.ContextConnector(config(), KVConnectorRole.WORKER).register_kv_caches(caches)


def test_a_server_of_a_model_with_more_layers_stops(vllm: None, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=2)])
    caches = pages(model)
    caches["model.layers.3.self_attn.attn"] = torch.zeros(2, BLOCKS, BLOCK, 2, 16)
    with pytest.raises(RuntimeError, match=r"^model\.layers\.3\..*: the context is of a model with 3 layers\.$"):
        client.ContextConnector(config(), KVConnectorRole.WORKER).register_kv_caches(caches)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_pages_of_less_precision_have_the_context_rounded_to_it(vllm: None, dtype: torch.dtype, tmp_path: Path) -> None:
    client, model, _ = exported(tmp_path / "out", [ts.Prefix(length=5)])
    caches = pages(model, dtype)
    assert step(client, [(Request("a", [*client.STAND_INS, 7]), 0, [3, 1])], caches) == [5]
    for side, name in enumerate(("keys", "values")):
        kept = torch.from_numpy(np.load(tmp_path / "out" / f"{name}.npy")).to(dtype)
        for layer, cache in enumerate(caches.values()):
            assert torch.equal(cache[side, 3], kept[layer, :4]) and torch.equal(cache[side, 1, 0], kept[layer, 4])


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_context_of_numbers_that_are_none_is_not_written(part: str, tmp_path: Path) -> None:
    model = model_of("llama")
    artifacts = tuned_of(model, [ts.Prefix(length=3)])
    artifacts[0].tensors[f"decoder.1.self.{part}"].data[0, 0, 0] = float("nan")
    for to in ("vllm_kv", "llama_slot"):
        with pytest.raises(UserError, match="holds numbers that are not finite: its training diverged"):
            convert.export(tmp_path / "out", artifacts, to=to, model=model, tokenizer=words())
    assert not (tmp_path / "out").exists()


def test_stand_ins_are_ordinary_tokens_that_both_the_tokenizer_and_the_model_have(tmp_path: Path) -> None:
    model, tokenizer = model_of("llama", vocab_size=40), words()  # which has 300
    tokenizer.add_special_tokens({"additional_special_tokens": [f"w{index}" for index in range(30)]})
    artifacts = tuned_of(model, [ts.Prefix(length=30)])
    convert.export(tmp_path / "out", artifacts, to="vllm_kv", model=model, tokenizer=tokenizer)
    assert set(client_of(tmp_path / "out").STAND_INS) <= set(range(30, 40))


def test_contexts_have_stand_ins_of_their_own_and_one_position_is_too_few(tmp_path: Path) -> None:
    model = model_of("llama")
    found = []
    for seed, length in ((0, 3), (1, 3), (2, 1)):
        with ts.attach(model, ts.Prefix(length=length), seed=seed) as tuned:
            artifacts = list(tuned.artifacts)
        if length == 1:
            with pytest.raises(UserError, match=r"one token that stands for the context would be found in ordinary"):
                convert.export(tmp_path / "one", artifacts, to="vllm_kv", model=model, tokenizer=words())
            continue
        convert.export(tmp_path / str(seed), artifacts, to="vllm_kv", model=model, tokenizer=words())
        found.append(client_of(tmp_path / str(seed)))
    assert found[0].STAND_INS != found[1].STAND_INS
    assert not {*found[0].STAND_INS, *found[1].STAND_INS} & set(words().all_special_ids)
    assert found[0].KVConnectorBase_V1 is object  # it asks where no vLLM is


def test_words_and_what_is_kept_of_them_have_begun_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = model_of("llama"), words()
    begun = TemplateProcessing(single="w1 $A", special_tokens=[("w1", 1)])
    tokenizer.bos_token = "w1"
    tokenizer.backend_tokenizer.post_processor = begun
    kept = ts.Anchors(text="w7 w8 w9", length=4, keep=(0, 2))
    for spec, start in ((ts.Text(text="w7 w8"), ()), (kept, ()), (ts.Prefix(length=3), (1,))):
        with ts.attach(model, spec, tokenizer=tokenizer) as tuned:
            artifacts = list(tuned.artifacts)
        folder = tmp_path / type(spec).__name__
        convert.export(folder, artifacts, to="vllm_kv", model=model, tokenizer=tokenizer)
        client, sent = client_of(folder), []
        assert start == client.START
        monkeypatch.setattr(client, "post", lambda url, path, body, sent=sent: sent.append(body))
        client.ask("http://here", "m", [7, 8])
        assert sent[0]["prompt"] == [*client.STAND_INS, *start, 7, 8]


def test_it_asks_with_the_stand_ins_in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _, _ = exported(tmp_path / "out", [ts.Prefix(length=2)])
    sent = []

    def post(url: str, path: str, body: dict[str, Any]) -> Any:
        sent.append((path, body))
        return {"tokens": [7, 8]}

    monkeypatch.setattr(client, "post", post)
    client.ask("http://here", "m", "w7 w8", max_tokens=3)
    assert sent[0] == ("/tokenize", {"model": "m", "prompt": "w7 w8", "add_special_tokens": False})
    assert sent[1][1] == {"model": "m", "prompt": [*client.STAND_INS, *client.START, 7, 8], "max_tokens": 3}
