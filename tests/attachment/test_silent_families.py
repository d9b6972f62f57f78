"""Contexts on families with habits of their own: keywords kept back, queries cut, chunks, windows, writes in place."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor

import tunescope as ts
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.text import Text

SMALL = {**tiny.DECODER, "hidden_size": 24, "intermediate_size": 40, "max_position_embeddings": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
FRONT = [3, 4, 17, 18]
LENGTHS = (7, 4)


def gemma4(per_layer: int = 6) -> Any:
    return tf.Gemma4TextConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=4,
        head_dim=8,
        global_head_dim=8,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=tiny.VOCAB,
        hidden_size_per_layer_input=per_layer,
    )


def llama4() -> Any:
    return tf.Llama4TextConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=2,
        head_dim=6,
        attention_chunk_size=8,
        layer_types=["chunked_attention", "full_attention"],
        no_rope_layers=[1, 0],
        intermediate_size_mlp=40,
        num_local_experts=2,
        moe_layers=[],
    )


CONFIGS = {
    "stablelm": lambda: tf.StableLmConfig(**tiny.LLAMA_LIKE),
    "nemotron": lambda: tf.NemotronConfig(**tiny.LLAMA_LIKE),
    "llama": lambda: tf.LlamaConfig(**tiny.LLAMA_LIKE),
    "gpt2": lambda: tf.GPT2Config(**tiny.DECODER, n_embd=24, n_layer=2, n_head=3, n_positions=64),
    "gemma4_text": gemma4,
    "llama4_text": llama4,
    "ctrl": lambda: tf.CTRLConfig(**tiny.DECODER, n_positions=64, n_embd=24, dff=40, n_layer=2, n_head=3),
}


def model(family: str) -> Any:
    return tiny.build(tf.AutoModelForCausalLM, CONFIGS[family]())


def text(ids: list[int] = FRONT) -> Artifact:
    return Artifact(Text(text="x"), {"ids": torch.tensor(ids)})


def padded(side: str) -> dict[str, Tensor]:
    """Two rows of LENGTHS, without position_ids."""
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    mask = ids.clone()
    for row, length in enumerate(LENGTHS):
        columns = slice(length) if side == "right" else slice(-length, None)
        ids[row, columns], mask[row, columns] = tiny.ids(1, length, seed=row)[0], 1
    return {"input_ids": ids, "attention_mask": mask}


def rows_of(given: dict[str, Tensor]) -> list[Tensor]:
    return [ids[mask.bool()][None] for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)]


def close(got: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def behind_an_infix(network: Any, infix: Artifact, ids: Tensor) -> Tensor:
    """(vocabulary,), of the last token of one row: transformers' own cache, in which the infix stands behind it."""
    n = ids.shape[1] - 1
    first = network(ids[:, :n], use_cache=True).past_key_values
    for index, layer in enumerate(first.layers):
        for which in ("keys", "values"):
            own = infix.tensors[f"decoder.{index}.self.{which[:-1]}"][None]
            setattr(layer, which, torch.cat([own, getattr(layer, which)], 2))
    at = torch.tensor([[n]])
    return network(ids[:, n:], past_key_values=first, position_ids=at).logits[0, -1]


@torch.no_grad()
@pytest.mark.parametrize("family", ["stablelm", "nemotron", "llama"])
def test_an_infix_stands_where_the_output_starts_whatever_the_layers_hand_on(family: str) -> None:
    with tiny.Float64():
        network = model(family)
        (infix,) = tiny.away(network, "infix:length=3")
        wanted = [behind_an_infix(network, infix, ids) for ids in rows_of(padded("right"))]
        with ts.attach(network, infix):
            starts = torch.tensor(LENGTHS) - 1
            longer = {name: torch.cat([value] * 2, 1) for name, value in padded("right").items()}
            longer["attention_mask"][:, max(LENGTHS) :] = 0  # so that no row's last column is where its input ends
            told = network(**longer, output_start=starts).logits
            for row, start in enumerate(starts):
                close(told[row, start], wanted[row])
            for cached in (True, False):
                out = network.generate(
                    **padded("left"),
                    max_new_tokens=2,
                    do_sample=False,
                    use_cache=cached,
                    output_logits=True,
                    return_dict_in_generate=True,
                )
                close(out.logits[0], torch.stack(wanted))


@torch.no_grad()
def test_queries_that_a_layer_cuts_are_the_last_ones() -> None:
    with tiny.Float64():
        network = model("gemma4_text")
        ids = tiny.ids(2, 7)
        with ts.attach(network, *tiny.away(network, "infix:length=3+prefix:length=2", by=1.0)):
            told = network(ids, output_start=torch.tensor([6, 6])).logits[:, -1]
            out = network.generate(
                ids, max_new_tokens=2, do_sample=False, output_logits=True, return_dict_in_generate=True
            )
            close(out.logits[0], told)
            whole = network(out.sequences[:, :-1], output_start=torch.tensor([6, 6])).logits[:, -1]
            close(out.logits[1], whole)
            kept = network(ids, output_start=torch.tensor([4, 5]), logits_to_keep=3).logits
            close(kept, network(ids, output_start=torch.tensor([4, 5])).logits[:, -3:])


@torch.no_grad()
@pytest.mark.parametrize("in_bank", [False, True])
def test_a_token_context_is_exact_within_a_chunk_and_refused_beyond(in_bank: bool) -> None:
    with tiny.Float64():
        network = model("llama4_text")
        whole = network(torch.cat([torch.tensor([FRONT]), tiny.ids(1, 4)], 1)).logits[:, len(FRONT) :]
        rows = {"rows": ["a"]} if in_bank else {}
        with ts.attach(network, ts.Bank({"a": text()}) if in_bank else text()):
            close(network(tiny.ids(1, 4), **rows).logits, whole)
            with pytest.raises(ts.UserError, match=r"'llama4_text' attends in chunks.* have 9 tokens, more than the 8"):
                network(tiny.ids(1, 5), **rows)
            with pytest.raises(ts.UserError, match="attends in chunks"):
                network.generate(tiny.ids(1, 4), max_new_tokens=3, pad_token_id=0, **rows)
        (lowered,) = ts.lower(network, text())
        with ts.attach(network, lowered), pytest.raises(ts.UserError, match="attends in chunks"):
            network(tiny.ids(1, 5))
        with ts.attach(network, ts.Prefix(length=4)):
            assert network(tiny.ids(1, 12)).logits.isfinite().all()


CONTEXTS = {
    "same": "prefix:length=3,positions=same",
    "after": "prefix:length=3,positions=after",
    "infix": "infix:length=3",
    "soft": "soft:length=3",
}


@torch.no_grad()
@pytest.mark.parametrize("arm", CONTEXTS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "stablelm", "ctrl"])
def test_a_left_padded_row_without_positions_is_what_it_is_alone(family: str, arm: str) -> None:
    with tiny.Float64():
        network, given = model(family), padded("left")
        artifacts = tiny.away(network, CONTEXTS[arm])
        decoding = {"max_new_tokens": 3, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        with ts.attach(network, *artifacts):
            alone = [network(ids).logits[0] for ids in rows_of(given)]
            written = [network.generate(ids, **decoding) for ids in rows_of(given)]
            together = network(**given).logits
            for cached in (True, False):
                out = network.generate(**given, **decoding, use_cache=cached)
                for row, one in enumerate(written):
                    close(torch.stack(out.logits)[:, row], torch.stack(one.logits)[:, 0])
        with ts.attach(network, ts.Bank({"a": artifacts})):
            in_bank = network(**given, rows=["a", "a"]).logits
            mixed = network(**given, rows=[None, "a"]).logits
        for row, one in enumerate(alone):
            close(together[row, -len(one) :], one)
            close(in_bank[row, -len(one) :], one)
        close(mixed[1, -len(alone[1]) :], alone[1])


@torch.no_grad()
@pytest.mark.parametrize("arm", ["prefix:length=3", "soft:length=3"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "modernbert"])
def test_a_left_padded_row_of_an_encoder_is_what_it_is_alone(family: str, arm: str) -> None:
    with tiny.Float64():
        network, given = encoder(family), padded("left")
        given["input_ids"] = given["input_ids"].where(given["attention_mask"].bool(), network.config.pad_token_id)
        artifacts = tiny.away(network, arm)
        with ts.attach(network, *artifacts):
            alone = [network(ids).last_hidden_state[0] for ids in rows_of(given)]
            out = network(**given, output_hidden_states=True)
        with ts.attach(network, ts.Bank({"a": artifacts, "b": tiny.away(network, "soft:length=2")})):
            in_bank = network(**given, rows=["a", "a"]).last_hidden_state
            mixed = network(**given, rows=["b", "a"]).last_hidden_state
        for row, one in enumerate(alone):
            close(out.last_hidden_state[row, -len(one) :], one)
            close(in_bank[row, -len(one) :], one)
        close(mixed[1, -len(alone[1]) :], alone[1])
        assert [states.shape for states in out.hidden_states] == [out.last_hidden_state.shape] * 3


def encoder(family: str) -> Any:
    from unlisted import UNMAPPED, unlisted

    if family == "modernbert":
        config = UNMAPPED[family]()
        config.local_attention = 4
        return tiny.build(tf.AutoModel, type(config)(**{**config.to_dict(), "local_attention": 4}))
    return unlisted(family) if family in UNMAPPED else tiny.make(family)


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_soft_prompt_of_a_left_padded_encoder_is_the_same_embeddings_in_the_row(family: str) -> None:
    with tiny.Float64():
        network, given = encoder(family), padded("left")
        (soft,) = tiny.away(network, "soft:length=3")
        with ts.attach(network, soft):
            got = network(**given).last_hidden_state
        for row, ids in enumerate(rows_of(given)):
            words = network.get_input_embeddings()(ids)
            whole = network(inputs_embeds=torch.cat([soft.tensors["embeddings"][None], words], 1)).last_hidden_state
            close(got[row, -ids.shape[1] :], whole[0, 3:])


@torch.no_grad()
def test_a_head_reads_the_first_token_of_a_left_padded_row_behind_a_soft_prompt() -> None:
    with tiny.Float64():
        network, given = encoder("bert"), padded("left")
        artifacts = tiny.away(network, "soft:length=3+head:n_labels=2")
        with ts.attach(network, *artifacts):
            alone = [network(ids).logits for ids in rows_of(given)]
            close(network(**given).logits, torch.cat(alone))
        with ts.attach(network, ts.Bank({"a": artifacts})):
            close(network(**given, rows=["a", "a"]).logits, torch.cat(alone))


@torch.no_grad()
def test_a_soft_prompt_is_never_written_into() -> None:
    with tiny.Float64():
        network = model("ctrl")
        (soft,) = tiny.away(network, "prefix:length=2,positions=same+soft:length=3")[1:]
        before = soft.tensors["embeddings"].clone()
        ids = tiny.ids(2, 5)
        with ts.attach(network, soft) as tuned:
            first, again = network(ids).logits, network(ids).logits
            assert torch.equal(first, again) and torch.equal(soft.tensors["embeddings"], before)
            with torch.enable_grad():
                tuned.train()
                network(ids, labels=ids).loss.backward()
            assert soft.tensors["embeddings"].grad.any()
            soft.tensors["embeddings"].requires_grad_(False)
        words = network.get_input_embeddings()(ids)
        whole = network(inputs_embeds=torch.cat([before.expand(2, -1, -1), words], 1)).logits[:, 3:]
        close(first, whole)
