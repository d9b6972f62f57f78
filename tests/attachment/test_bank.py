"""A bank in use: generation, training, folders, bounds, threads, bad input."""

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from traces import assert_no_trace, trace

import tunescope as ts
from tunescope.attachment.attention.function import STATE
from tunescope.attachment.bank.bank import Entry
from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.bank.hot import Hot, Ready
from tunescope.attachment.sites import site_map
from tunescope.methods.artifact import Artifact
from tunescope.system import files

ARMS = {
    "prefix": "prefix:length=5",
    "short": "prefix:length=2",
    "soft": "soft:length=4",
    "lora": "lora:rank=2,alpha=3,sites=attn.q,attn.v,ffn.out",
    "mam": "prefix:length=3+adapter:bottleneck=3,placement=parallel,sites=ffn,scale=4.0",
}
ROWS = ["prefix", "short", None, "soft", "lora", "mam", "lora"]


def members(model: Any, arms: dict[str, str] = ARMS) -> dict[str, list[Artifact]]:
    return {name: tiny.away(model, arm, seed) for seed, (name, arm) in enumerate(arms.items())}


def texts(rows: int) -> dict[str, torch.Tensor]:
    """Left-padded, as decoders are asked to go on."""
    ids, mask = tiny.ids(rows, 6), torch.ones(rows, 6, dtype=torch.long)
    for row in range(rows):
        mask[row, : row % 3] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "t5", "bart"])
def test_generation_of_each_row_is_as_alone(family: str, beams: int) -> None:
    model = tiny.make(family)
    rows = [row for row in ROWS if row != "soft" or family in ("gpt2", "llama", "qwen3")]
    given = texts(len(rows)) if family not in ("t5", "bart") else {"input_ids": tiny.ids(len(rows), 6)}
    held = members(model)
    how: dict[str, Any] = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False, "min_new_tokens": 6}
    with ts.attach(model, ts.Bank(held), tokenizer=tiny.tokenizer()):
        together = model.generate(**given, rows=rows, **how)
    for index, name in enumerate(rows):
        own = {key: value[index : index + 1] for key, value in given.items()}
        if name is None:
            alone = model.generate(**own, **how)
        else:
            with ts.attach(model, *held[name], tokenizer=tiny.tokenizer()):
                alone = model.generate(**own, **how)
        assert together[index].tolist() == alone[0].tolist(), name


@pytest.mark.parametrize("way", [{"cache_implementation": "static"}, {"prefill_chunk_size": 3}, {"use_cache": False}])
def test_an_infix_of_a_bank_knows_where_the_output_begins_however_it_is_written(way: dict[str, Any]) -> None:
    model = tiny.make("llama")
    given, rows = {"input_ids": tiny.ids(3, 7)}, ["infix", None, "prefix"]
    held = members(model, {"infix": "infix:length=3", "prefix": "prefix:length=2"})
    how: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "min_new_tokens": 6, "pad_token_id": 0}
    with ts.attach(model, ts.Bank(held)):
        together = model.generate(**given, rows=rows, **how, **way)
    alone = [model.generate(input_ids=given["input_ids"][1:2], **how)]
    for index, name in ((0, "infix"), (2, "prefix")):
        with ts.attach(model, *held[name]):
            alone.insert(index, model.generate(input_ids=given["input_ids"][index : index + 1], **how))
    assert together.tolist() == torch.cat(alone).tolist()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bert"])
def test_gradients_of_each_member_are_as_alone(family: str, checkpointing: bool) -> None:
    model = tiny.make(family)
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    names = ["prefix", "short", "lora", "lora", "mam"] + (["soft"] if family != "t5" else [])
    given = {"input_ids": tiny.ids(len(names), 6)}
    if family == "t5":
        given["decoder_input_ids"] = tiny.ids(len(names), 5, seed=2)
    held = members(model)

    def loss(out: Any, row: int) -> torch.Tensor:
        made = out["logits"] if "logits" in out else out["last_hidden_state"]
        return made[row].pow(2).mean()

    with ts.attach(model, ts.Bank(held), tokenizer=tiny.tokenizer()) as tuned:
        tuned.train()
        out = model(**given, rows=names)
        sum(loss(out, row) for row in range(len(names))).backward()
        together = {name: value.grad for name, value in tuned.named_parameters().items()}
        assert not any(parameter.grad is not None for parameter in model.parameters())
        for value in tuned.parameters():
            value.grad = None
        tuned.eval()
    for name in dict.fromkeys(names):
        with ts.attach(model, *held[name], tokenizer=tiny.tokenizer()) as tuned:
            tuned.train()
            mine = [row for row, other in enumerate(names) if other == name]
            out = model(**{key: value[mine] for key, value in given.items()})
            sum(loss(out, row) for row in range(len(mine))).backward()
            for key, value in tuned.named_parameters().items():
                found = together[f"{name}/{key}"]
                assert value.grad is not None and found is not None and value.grad.abs().max() > 0
                torch.testing.assert_close(found, value.grad, rtol=0, atol=1e-12)
                value.grad = None
            tuned.eval()


def test_in_float32_a_row_is_as_alone_to_a_millionth() -> None:
    model = tiny.make("llama", dtype=torch.float32)
    held, given = members(model), {"input_ids": tiny.ids(len(ROWS), 6)}
    with ts.attach(model, ts.Bank(held), tokenizer=tiny.tokenizer()), torch.inference_mode():
        together = model(**given, rows=ROWS).logits
    for index, name in enumerate(ROWS):
        if name is not None:
            with ts.attach(model, *held[name], tokenizer=tiny.tokenizer()), torch.inference_mode():
                alone = model(input_ids=given["input_ids"][index : index + 1]).logits
            largest = float(alone.abs().max())  # of several units: a millionth of it is eight of float32's roundings
            torch.testing.assert_close(together[index], alone[0], rtol=0, atol=1e-6 * max(1.0, largest))


def test_heads_of_an_encoder_stand_by_row_and_do_not_mix_with_none() -> None:
    model = tiny.make("bert")
    arms = {"anna": "lora:rank=2+head:n_labels=3", "ben": "prefix:length=2+head:n_labels=3", "two": "head:n_labels=2"}
    held, given = members(model, arms), tiny.batch(model)
    with ts.attach(model, ts.Bank(held)):
        logits = model(**given, rows=["ben", "anna"]).logits
        with pytest.raises(ts.UserError, match=r"1 of 2 rows have a head .*give every row of a batch a head"):
            model(**given, rows=["ben", None])
        with pytest.raises(ts.UserError, match="as many labels"):
            model(**given, rows=["ben", "two"])
    for index, name in enumerate(["ben", "anna"]):
        with ts.attach(model, *held[name]):
            alone = model(**{key: value[index : index + 1] for key, value in given.items()}).logits
        torch.testing.assert_close(logits[index], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_soft_prompts_of_several_lengths_stand_in_one_batch_of_an_encoder(family: str) -> None:
    model = tiny.make(family)
    held = members(model, {"four": "soft:length=4", "one": "soft:length=1"})
    given = tiny.batch(model, "right")
    given = {key: torch.cat([value, value[:1]]) for key, value in given.items()}
    rows = ["four", "one", None]
    with ts.attach(model, ts.Bank(held)), torch.no_grad():
        together = model(**given, rows=rows)
        if family == "t5":  # no mask: the pads in front of the shorter contexts still stay hidden
            bare = model(**{key: value for key, value in given.items() if key != "attention_mask"}, rows=rows).logits
    name = "logits" if family == "t5" else "last_hidden_state"
    for index, row in enumerate(rows):
        own = {key: value[index : index + 1] for key, value in given.items()}
        with ts.attach(model, *(held[row] if row else [ts.LoRA(rank=1)])), torch.no_grad():
            alone = model(**own)[name]
            own.pop("attention_mask")
            unmasked = model(**own)[name] if family == "t5" else None
        seen = slice(None) if family == "t5" else given["attention_mask"][index].bool()
        torch.testing.assert_close(together[name][index][seen], alone[0][seen], rtol=0, atol=1e-12)
        if unmasked is not None:
            torch.testing.assert_close(bare[index], unmasked[0], rtol=0, atol=1e-12)


def test_it_leaves_no_trace_also_after_errors() -> None:
    model = tiny.make("gpt2")
    before = trace(model)
    with ts.attach(model, ts.Bank(members(model)), tokenizer=tiny.tokenizer()):
        model(**tiny.batch(model), rows=["lora", "soft"])
        with pytest.raises(ts.UserError, match=r"no artifact is named 'lore'\. Did you mean 'lora'"):
            model(**tiny.batch(model), rows=["lore", None])
        with pytest.raises(IndexError):
            model(input_ids=torch.tensor([[10**6]]), rows=["lora"])
        model(**tiny.batch(model), rows=["lora", "soft"])
    assert_no_trace(model, before)


def test_folders_are_read_when_asked_for_and_leave_when_they_are_too_many(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    bare = tiny.batch(model)
    for seed in range(5):
        artifacts = tiny.away(model, f"prefix:length={2 + seed}+lora:rank=2", seed)
        ts.save(tmp_path / f"customer {seed}", artifacts, model=model, tokenizer=tiny.tokenizer())
    bank = ts.Bank.folder(tmp_path, hot=1)
    assert len(bank) == 5 and "customer 3" in bank and next(iter(bank)) == "customer 0"
    alone = []
    for seed in range(5):
        with ts.attach(model, *ts.load(tmp_path / f"customer {seed}")):
            alone.append(model(**{key: value[:1] for key, value in bare.items()}).logits[0])
    with ts.attach(model, bank, tokenizer=tiny.tokenizer()) as tuned:
        assert isinstance(tuned, Banked)
        assert held(tuned) == [] and tuned.parameters() == []
        for pair in ([0, 1], [2, 3], [3, 4]):
            with torch.inference_mode():
                out = model(**{k: v[:1].repeat(2, 1) for k, v in bare.items()}, rows=[f"customer {i}" for i in pair])
            for row, index in enumerate(pair):
                torch.testing.assert_close(out.logits[row], alone[index], rtol=0, atol=1e-12)
            assert held(tuned) == [f"customer {i}" for i in pair]
        bank.hot = 10**6
        model(**bare, rows=["customer 0", "customer 1"])
        assert held(tuned) == ["customer 3", "customer 4", "customer 0", "customer 1"]
        bank.remove("customer 4")
        model(**bare, rows=["customer 3", None])
        assert held(tuned) == ["customer 0", "customer 1", "customer 3"]
        bank.remove("customer 1")
        bank.add("customer 1", tmp_path / "customer 2")
        row = model(**{key: value[:1] for key, value in bare.items()}, rows=["customer 1"]).logits[0]
        torch.testing.assert_close(row, alone[2], rtol=0, atol=1e-12)
        assert held(tuned) == ["customer 0", "customer 3", "customer 1"]


def folders(model: Any, where: Path, n: int) -> None:
    for seed in range(n):
        ts.save(where / f"{seed}", tiny.away(model, f"prefix:length={2 + seed % 3}", seed), model=model)


def sizes(ready: Ready) -> int:
    """What an entry holds: its tensors, and the keys and values that were made of them."""
    made = [value for artifact in ready.artifacts for value in artifact.tensors.values()]
    for _, extras, _ in ready.extras.values():
        made += [part for some in extras.values() for extra in some for part in (extra.key, extra.value)]
    return sum(value.nbytes for value in made)


def test_a_pass_asks_as_many_entries_for_their_sizes_however_many_are_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = tiny.make("gpt2"), []
    folders(model, tmp_path, 12)
    given, count, holds = tiny.batch(model), Ready.bytes, ts.Bank.holds
    monkeypatch.setattr(Ready, "bytes", lambda ready: asked.append("size") or count(ready))  # type: ignore[func-returns-value]
    monkeypatch.setattr(ts.Bank, "holds", lambda *its: asked.append("holds") or holds(*its))  # type: ignore[func-returns-value]
    found = []
    with ts.attach(model, ts.Bank.folder(tmp_path)), torch.no_grad():
        for name in range(12):
            model(**given, rows=[str(name), None])
            model(**given, rows=[str(name), None])
            asked.clear()
            model(**given, rows=[str(name), None])
            found.append(list(asked))
    assert found == [["size"]] * 12


def staying(hot: Hot, keep: set[Entry]) -> tuple[list[Entry], int]:
    """What is to stay, and its bytes, literally: all sizes are summed, and the oldest go, one after the other."""
    left = [entry for entry in hot._ready if hot.bank.holds(entry) or entry in keep]
    read = [entry for entry in left if isinstance(entry.given, Path)]
    total = sum(sizes(hot._ready[entry]) for entry in read)
    for entry in read:
        if total <= hot.bank.hot:
            break
        if entry not in keep:
            total -= sizes(hot._ready[entry])
            left.remove(entry)
    return left, total


def test_the_running_total_is_the_sum_and_the_bound_is_kept_whatever_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, draw = tiny.make("gpt2"), random.Random(0)
    folders(model, tmp_path, 6)
    bank, given, real = ts.Bank.folder(tmp_path), tiny.batch(model), Hot._shrink
    bank.add("given", tiny.away(model, "prefix:length=2", 9))
    passes: list[tuple[int, int]] = []

    def shrink(hot: Hot, keep: set[Entry]) -> None:
        before, wanted = len(hot._ready), staying(hot, keep)
        real(hot, keep)
        assert (list(hot._ready), hot._held) == wanted
        passes.append((before, len(hot._ready)))

    monkeypatch.setattr(Hot, "_shrink", shrink)
    with ts.attach(model, bank) as tuned, torch.no_grad():
        for _ in range(200):
            bank.hot = draw.choice([0, 2_000, 4_000, 8_000, 10**6])
            name = str(draw.randrange(6))
            if draw.random() < 0.3:
                if name in bank:
                    bank.remove(name)
                else:
                    bank.add(name, tmp_path / name)
            if draw.random() < 0.1:
                tuned.parameters()
            model(**given, rows=draw.choices([*bank, None], k=2))
    assert {after - before for before, after in passes} >= {0, -1, -2} and max(after for _, after in passes) >= 5


def held(tuned: Banked) -> list[str]:
    """What is at hand, the most recently used last."""
    return [entry.name for entry in tuned._hot._ready]


def test_what_all_rows_share_is_not_copied_into_each() -> None:
    model = tiny.make("gpt2")
    artifacts = members(model, {"a": "soft:length=4", "b": "prefix:length=3"})
    given = tiny.batch(model)
    with ts.attach(model, ts.Bank(artifacts)):
        for name in artifacts:
            together = model(**given, rows=[name, name]).logits
            (extra,) = model.transformer.h[0].attn.__dict__[STATE].extras
            assert extra.key.dim() == 3
            mixed = model(**given, rows=[name, None]).logits
            (extra,) = model.transformer.h[0].attn.__dict__[STATE].extras
            assert extra.key.dim() == 4
            torch.testing.assert_close(mixed[0], together[0], rtol=0, atol=1e-12)


@pytest.fixture
def _by_turns() -> Iterator[None]:
    """Threads take turns fifty times as often as by default: more meetings, and in less time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 50)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_by_turns")
def test_names_come_and_go_while_batches_run() -> None:
    model = tiny.make("gpt2")
    artifacts = members(model, {"a": "prefix:length=3", "b": "lora:rank=2"})
    bank, stop, problems = ts.Bank({"stays": artifacts["a"]}), threading.Event(), []

    def change() -> None:
        try:
            while not stop.is_set():
                bank.add("comes", artifacts["b"])
                bank.remove("comes")
        except Exception as problem:
            problems.append(problem)

    thread = threading.Thread(target=change)
    given = tiny.batch(model)
    with ts.attach(model, bank):
        first = model(**given, rows=["stays", None]).logits
        thread.start()
        for _ in range(20):
            assert torch.equal(model(**given, rows=["stays", None]).logits, first)
        stop.set()
        thread.join()
    assert not problems


def test_a_delta_may_come_to_a_bank_of_contexts_on_a_model_whose_sites_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_map, "_BY_SHAPE", {})
    model, bank = tiny.make("gpt2"), ts.Bank({"context": ts.Prefix(length=2)})
    given, delta = tiny.batch(model), tiny.away(tiny.make("gpt2"), "lora:rank=2", 0)
    with ts.attach(model, *delta):
        wanted = model(**given).logits
    with ts.attach(model, bank):
        bank.add("delta", delta)
        torch.testing.assert_close(model(**given, rows=["delta"] * 2).logits, wanted, rtol=0, atol=1e-12)
        site_map._BY_SHAPE.clear()
        with pytest.raises(ts.UserError, match=r"A bank is attached, and sites are looked for while nothing is: det"):
            site_map.site_map(model)


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
def test_methods_are_made_into_tensors_when_a_batch_first_asks_for_them(family: str) -> None:
    """A fresh prefix measures the model's own keys: it is run bare, whatever rows were there before."""
    model, given = tiny.make(family), tiny.batch(tiny.make(family), "none")
    bank = ts.Bank({"soft": tiny.away(model, "soft:length=3+lora:rank=2", 0), "prefix": ts.Prefix(length=3)})
    with ts.attach(model, ts.Prefix(length=3)) as tuned:
        wanted, tensors = tiny.output(model, given), tuned.parameters()
    with ts.attach(model, bank) as banked, torch.no_grad():
        first = tiny.output(model, given | {"rows": ["soft", "soft"]})
        torch.testing.assert_close(tiny.output(model, given | {"rows": ["prefix"] * 2}), wanted, rtol=0, atol=1e-12)
        bank.add("later", ts.Prefix(length=3))
        found = tiny.output(model, given | {"rows": ["soft", "later"]})
        torch.testing.assert_close(found[0], first[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=1e-12)
        held = banked.named_parameters()
    for name in ("prefix", "later"):
        own = [value for key, value in held.items() if key.startswith(f"{name}/")]
        assert all(torch.equal(value, other) for value, other in zip(own, tensors, strict=True))


def test_a_name_that_is_given_anew_acts_anew() -> None:
    model = tiny.make("gpt2")
    one, other = tiny.away(model, "prefix:length=3", 1), tiny.away(model, "prefix:length=3", 2)
    bank, given = ts.Bank({"anna": one}), tiny.batch(model)
    with ts.attach(model, bank):
        before = model(**given, rows=["anna", None]).logits
        bank.remove("anna")
        bank.add("anna", other)
        after = model(**given, rows=["anna", None]).logits
        name, tensor = next(iter(other[0].tensors.items()))
        with torch.no_grad():
            tensor += 1
        changed = model(**given, rows=["anna", None]).logits
    assert not torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])
    assert not torch.equal(changed[0], after[0]), name


def test_a_save_that_is_at_work_or_was_killed_and_hidden_folders_are_no_artifacts(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    for name in ("anna", "ben", ".hidden", "x.tmp-1"):
        ts.save(tmp_path / name, tiny.away(model, "lora:rank=2", 0), model=model)
    (tmp_path / "ben").rename(files.beside(tmp_path / "ben"))
    assert list(ts.Bank.folder(tmp_path)) == ["anna", "x.tmp-1"]


def test_the_base_is_that_of_what_is_there_and_not_of_what_was_removed(tmp_path: Path) -> None:
    model, other = tiny.make("gpt2"), tiny.make("gpt2", seed=5)
    for name, base in (("a", model), ("b", model), ("c", other)):
        ts.save(tmp_path / name, tiny.away(base, "lora:rank=2", 0), model=base)
    bank = ts.Bank({"a": tmp_path / "a", "b": tmp_path / "b"})
    bank.remove("a")
    with pytest.raises(ts.UserError, match=r"'c' was made for another base model .* than 'b'"):
        bank.add("c", tmp_path / "c")
    bank.remove("b")
    bank.add("c", tmp_path / "c")
    assert list(bank) == ["c"]


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    model, other = tiny.make("gpt2"), tiny.make("gpt2", seed=5)
    lora = tiny.away(model, "lora:rank=2", 0)
    ts.save(tmp_path / "mine", lora, model=model)
    ts.save(tmp_path / "theirs", tiny.away(other, "lora:rank=2", 0), model=other)
    with pytest.raises(ts.UserError, match=r"'theirs' was made for another base model .* than 'mine'"):
        ts.Bank.folder(tmp_path)
    with pytest.raises(ts.UserError, match="is no saved artifact"):
        ts.Bank({"none": tmp_path / "nothing"})
    with pytest.raises(ts.UserError, match=r"no folder in it holds a tunescope.json"):
        ts.Bank.folder(tmp_path / "mine")
    for name in ("", " ", 3):
        with pytest.raises(ts.UserError, match=rf"Bank: {name!r} is no name: give text"):
            ts.Bank({name: lora})
    with pytest.raises(ts.UserError, match=r"'a' is given a int: give an artifact, a list of them, or a folder"):
        ts.Bank({"a": 3})
    with (
        ts.attach(model, ts.Bank({"anna": lora})),
        pytest.raises(ts.UserError, match=r"a row takes a name or None, and not .*: rows=\['anna', None\]"),
    ):
        model(**tiny.batch(model), rows=[["a", "b"]] * 12)
    with pytest.raises(ts.UserError, match=r"'anna' is there already. Type bank.remove\('anna'\)"):
        ts.Bank({"anna": lora}).add("anna", lora)
    with pytest.raises(ts.UserError, match=r"'anna' is given a int"):
        ts.Bank({"anna": [3]})  # type: ignore[list-item]
    with pytest.raises(ts.UserError, match=r"'anna' is given nothing"):
        ts.Bank({"anna": []})
    with pytest.raises(ts.UserError, match="a full tuning, which is a model of its own"):
        ts.Bank({"anna": ts.Full()})
    with pytest.raises(ts.UserError, match="changes attention itself: attach it alone"):
        ts.Bank({"anna": tiny.away(model, "text:text=w5 w6 w7 w8+reweight:anchors=1,2/3", 0)})
    with pytest.raises(ts.UserError, match="A bank is attached alone"):
        ts.attach(model, ts.LoRA(), ts.Bank({}))
    with ts.attach(model, ts.Bank({"theirs": tmp_path / "theirs"})):
        with pytest.raises(ts.UserError, match="was made for another base model"):
            model(**tiny.batch(model), rows=["theirs", None])
        with pytest.raises(ts.UserError, match=r"every call says what each row takes: rows="):
            model(**tiny.batch(model))
        with pytest.raises(ts.UserError, match="names 3 rows, and the batch has 2"):
            model(**tiny.batch(model), rows=["theirs", None, None])
        with pytest.raises(ts.UserError, match="give a list with a name, or None, for each row"):
            model(**tiny.batch(model), rows="theirs")
        with pytest.raises(ts.UserError, match="artifacts attached already"):
            ts.attach(model, ts.Bank({}))
    data = bytearray((tmp_path / "mine" / "tensors.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "mine" / "tensors.safetensors").write_bytes(data)
    with (
        ts.attach(model, ts.Bank({"mine": tmp_path / "mine"})),
        pytest.raises(ts.UserError, match="is damaged: its sha256"),
    ):
        model(**tiny.batch(model), rows=["mine", None])


@pytest.mark.parametrize("way", ["folder", "paths"])
def test_a_bank_of_a_relative_folder_is_that_wherever_the_process_goes(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.make("llama")
    monkeypatch.chdir(tmp_path)
    ts.save("mine/anna", tiny.away(model, "lora:rank=2"), model=model)
    bank = ts.Bank.folder("mine") if way == "folder" else ts.Bank({"anna": "mine/anna"})
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with ts.attach(model, bank), torch.no_grad():
        found = model(tiny.ids(1, 5), rows=["anna"]).logits
    with ts.attach(model, *ts.load(tmp_path / "mine" / "anna")), torch.no_grad():
        torch.testing.assert_close(found, model(tiny.ids(1, 5)).logits)
