"""A row padded on the left, without position_ids, is what it is alone, whatever stands before it."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from odd_families import close, model, padded, rows_of
from unlisted import UNMAPPED, unlisted

import tunescope as ts
from tunescope.methods.artifact import Artifact

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


def encoder(family: str) -> Any:
    return unlisted(family) if family in UNMAPPED else tiny.make(family)


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
@pytest.mark.parametrize("arm", ["infix:length=3", "text:text=w5 w6 w7 w8+reweight:anchors=1,2/3"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_what_acts_from_the_last_token_of_an_input_does_so_in_a_row_padded_on_the_right(family: str, arm: str) -> None:
    """Without output_start: each row's own last token is that of its input, and not the last column."""
    with tiny.Float64():
        network, given = model(family), padded("right")
        artifacts, of_text = tiny.away(network, arm), padded("right")["attention_mask"].sum(1)
        with ts.attach(network, *artifacts):
            alone = [network(ids).logits[0] for ids in rows_of(given)]
            together = network(**given).logits
        for row, one in enumerate(alone):
            close(together[row, : of_text[row]], one)
        if arm.startswith("infix"):  # a bank holds no reweight
            with ts.attach(network, ts.Bank({"a": artifacts})):
                in_bank = network(**given, rows=["a", "a"]).logits
            close(in_bank[given["attention_mask"].bool()], together[given["attention_mask"].bool()])


@torch.no_grad()
@pytest.mark.parametrize("arm", ["head:n_labels=2,pooler=true", "soft:length=3+head:n_labels=2,pooler=true"])
def test_a_pooler_is_refused_a_row_that_is_padded_on_the_left(arm: str) -> None:
    """It reads the first column, whatever stands there: padding, in transformers as here."""
    with tiny.Float64():
        network = encoder("bert")
        left, right = padded("left"), padded("right")
        with ts.attach(network, *tiny.away(network, arm)):
            alone = [network(ids).logits for ids in rows_of(right)]
            close(network(**right).logits, torch.cat(alone))
            with pytest.raises(ts.UserError, match="The pooler of BertModel reads the first column, which is padding"):
                network(**left)


@torch.no_grad()
def test_a_head_reads_the_first_token_behind_prompts_of_other_lengths_where_no_mask_is_given() -> None:
    with tiny.Float64():
        network, ids = encoder("bert"), tiny.ids()
        bank = {name: tiny.away(network, f"soft:length={n}+head:n_labels=2", n) for name, n in (("a", 3), ("b", 1))}
        alone = []
        for row, name in enumerate(bank):
            with ts.attach(network, *bank[name]):
                alone.append(network(ids[row : row + 1]).logits)
        with ts.attach(network, ts.Bank(bank)):
            close(network(ids, rows=list(bank)).logits, torch.cat(alone))


@torch.no_grad()
def test_a_last_token_is_read_by_its_id_behind_a_soft_prompt_too() -> None:
    network, ids = tiny.make("bert"), torch.tensor([[5, 6, 7, 0, 0]])
    for arm in ("head:token=last,n_labels=2", "soft:length=2+head:token=last,n_labels=2"):
        with ts.attach(network, *tiny.away(network, arm)):
            apart = [network(some).logits for some in (ids, torch.tensor([[5, 6, 7, 9, 9]]))]
            behind = network(ids, attention_mask=(ids != 0).long()).logits
        assert not torch.equal(*apart)
        close(apart[0], network_at(network, arm, ids))
        assert behind.shape == apart[0].shape


def network_at(network: Any, arm: str, ids: torch.Tensor) -> torch.Tensor:
    """The head on the state of the last token that is no padding, all tokens read."""
    artifacts = tiny.away(network, arm)
    head = artifacts[-1]
    with ts.attach(network, *artifacts):
        states = network(ids, output_hidden_states=True).hidden_states[-1]
    own = {name.partition(":")[2]: value for name, value in head.tensors.items()}
    return head.spec.apply(own, states[:, 2], None)  # type: ignore[attr-defined]


@torch.no_grad()
def test_reweighting_what_padding_on_the_left_moves_is_refused() -> None:
    half = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    half |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
    half |= {"sliding_window": 64, "max_position_embeddings": 64, "pad_token_id": 0}
    torch.manual_seed(0)
    config = tf.T5GemmaConfig(encoder=half, decoder=half, vocab_size=64)
    network = tf.T5GemmaForConditionalGeneration(config).eval().double()
    beta = {f"decoder.{layer}.cross.beta": torch.full((2, 1), 2.0, dtype=torch.float64) for layer in range(2)}
    shown = Artifact(ts.Text(text="x"), {"ids": torch.tensor([5, 6, 7, 8])})
    row, target = torch.tensor([[11, 12, 13, 14]]), torch.tensor([[2, 21, 22]])
    nothing = torch.zeros_like(row)
    with ts.attach(network, shown, Artifact(ts.Reweight(anchors=("2",)), beta)):
        alone = network(input_ids=row, decoder_input_ids=target).logits
        right = torch.cat([row, nothing], 1)
        got = network(input_ids=right, attention_mask=(right != 0).long(), decoder_input_ids=target).logits
        close(got, alone)
        left = torch.cat([nothing, row], 1)
        with pytest.raises(ts.UserError, match=r"padding on the left moves it\. Pad the text on the right"):
            network(input_ids=left, attention_mask=(left != 0).long(), decoder_input_ids=target)
    rests = {name: torch.zeros_like(value) for name, value in beta.items()}
    with ts.attach(network, shown, Artifact(ts.Reweight(anchors=("2",)), rests)):
        bare = network(input_ids=row, decoder_input_ids=target).logits
        close(network(input_ids=left, attention_mask=(left != 0).long(), decoder_input_ids=target).logits, bare)
