"""Contexts on families with habits of their own: keywords kept back, queries cut, chunks, sound, writes in place."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from odd_families import FRONT, LENGTHS, close, gemma4, longt5, model, padded, rows_of, text
from torch import Tensor
from transformers.masking_utils import eager_mask

import tunescope as ts
from tunescope.attachment.attention.reach import quick_to_train
from tunescope.methods.artifact import Artifact


def literal(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Torch's attention over a layer's own keys with two tensors in front of them."""
    front = [part.expand(len(key), -1, -1, -1) for part in module.front]
    key, value = torch.cat([front[0], key], 2), torch.cat([front[1], value], 2)
    if mask is not None:
        mask = torch.nn.functional.pad(mask, (front[0].shape[2], 0))
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2), None


tf.AttentionInterface.register("literal in front", literal)
tf.AttentionMaskInterface.register("literal in front", eager_mask)


def layers_of(network: Any) -> dict[str, Any]:
    """ "encoder.0.self" -> the module that computes it, by transformers' own names."""
    found = {}
    for stack in ("encoder", "decoder") if network.config.is_encoder_decoder else ("",):
        for path, one in network.named_modules():
            if type(one).__name__.endswith("Attention") and (not stack or f"{stack}.layers" in path):
                which = "cross" if path.endswith("encoder_attn") else "self"
                kind = stack or ("decoder" if "CausalLM" in type(network).__name__ else "encoder")
                layer = next(part for part in path.split(".") if part.isdigit())
                found[f"{kind}.{layer}.{which}"] = one
    return found


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


def images_or_words(family: str) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    if family == "vit":
        return {"pixel_values": torch.randn(2, 3, 8, 8, generator=draw, dtype=torch.float64)}
    if family == "whisper":
        sound = torch.randn(2, 8, 12, generator=draw, dtype=torch.float64)
        return {"input_features": sound, "decoder_input_ids": tiny.ids(2, 5)}
    return padded("right")


@torch.no_grad()
def test_whisper_s_times_of_tokens_set_another_attention_which_is_told_in_a_way_that_works() -> None:
    network, sound = model("whisper"), images_or_words("whisper")["input_features"]
    given = {"input_features": sound, "max_new_tokens": 3, "do_sample": False}
    vars(network.generation_config).update(no_timestamps_token_id=3, alignment_heads=[[0, 0]], is_multilingual=False)
    with tiny.Float64(), ts.attach(network, ts.Prefix(length=2)):
        expected = network.generate(**given)
        with pytest.raises(
            ts.UserError, match=r"generate\(return_token_timestamps=True\) sets it by itself: leave that"
        ):
            network.generate(**given, return_token_timestamps=True)
        network.set_attn_implementation("tunescope")
        assert torch.equal(network.generate(**given), expected)


@torch.no_grad()
@pytest.mark.parametrize("family", ["vit", "whisper", "clip_text_model", "jamba"])
def test_a_prefix_stands_before_every_layer_of_what_takes_no_text(family: str) -> None:
    with tiny.Float64():
        network, given = model(family), images_or_words(family)
        (prefix,) = tiny.away(network, "prefix:length=3,positions=same")
        bare = network(**given)[0]
        with ts.attach(network, prefix):
            got = network(**given)[0]
        with ts.attach(network, ts.Bank({"a": prefix})):
            in_bank = network(**given, rows=["a", None])[0]
        for name, one in layers_of(network).items():
            one.front = [prefix.tensors[f"{name}.{which}"][None] for which in ("key", "value")]
        assert len(prefix.tensors) == 2 * len(layers_of(network))
        network.set_attn_implementation("literal in front")
        expected = network(**given)[0]
        assert (expected - bare).abs().max() > 1e-3
        mask = given.get("attention_mask", torch.ones(got.shape[:2])).bool()
        close(got[mask], expected[mask])
        close(in_bank[0], got[0])
        close(in_bank[1, mask[1]], bare[1, mask[1]])


REFUSED = [
    ("vit", ts.Soft(length=2), r"encoder of family 'vit' takes pixel_values, and no embeddings.*Use a prefix"),
    ("vit", ts.Prefix(length=2, init_from="tokens"), r"'vit' takes 'pixel_values' and no tokens.*init_from='noise'"),
    ("whisper", ts.Soft(length=2), r"encoder of family 'whisper' takes input_features, and no embeddings"),
    ("clip_text_model", text(), r"family 'clip_text_model' takes input_ids alone, and no embeddings.*Use a prefix"),
    ("gemma4_text", text(), r"Family 'gemma4_text', run on embeddings .*its own code fails \(RuntimeError"),
    ("gemma4_text", ts.Soft(length=2), r"Family 'gemma4_text', run on embeddings .*its own code fails"),
    ("jamba", ts.Soft(length=2), r"in family 'jamba' text put in front .* Use a prefix"),
    ("longt5", ts.Prefix(length=2), r"2 of 2 encoder layers of family 'longt5' compute attention by themselves"),
    ("bigbird_pegasus", ts.Prefix(length=2), r"'bigbird_pegasus' gives its attention something"),
    ("bigbird_pegasus", ts.Soft(length=2), r"'bigbird_pegasus' gives its attention something"),
    ("minimax_m3_vl_text", ts.Prefix(length=2), r"its attention something that tunescope .* know \(block_indices\)"),
    ("minimax_m3_vl_text", ts.Soft(length=2), r"its attention something that tunescope .* know \(block_indices\)"),
]


@pytest.mark.parametrize(("family", "context", "message"), REFUSED, ids=lambda one: str(one)[:20])
def test_what_a_family_cannot_have_is_one_line(family: str, context: Any, message: str) -> None:
    network = model(family)
    with pytest.raises(ts.UserError, match=message) as caught:
        ts.attach(network, context)
    assert "\n" not in str(caught.value) and not [one for one in network.modules() if "_tunescope" in one.__dict__]
    with pytest.raises(ts.UserError, match=message), ts.attach(network, ts.Bank({"a": context})):
        network(**padded("right"), rows=["a", "a"])


@torch.no_grad()
def test_gemma4_without_inputs_a_layer_takes_text_as_the_same_tokens_in_the_row() -> None:
    with tiny.Float64():
        network, ids = tiny.build(tf.AutoModelForCausalLM, gemma4(per_layer=0)), tiny.ids(2, 9)
        whole = network(torch.cat([torch.tensor([FRONT] * 2), ids], 1)).logits[:, len(FRONT) :]
        with ts.attach(network, text()):
            close(network(ids).logits, whole)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5_takes_a_soft_prompt_as_the_same_embeddings_in_the_row(kind: str) -> None:
    with tiny.Float64():
        network, given = tiny.build(tf.AutoModelForSeq2SeqLM, longt5(kind)), padded("right")
        (soft,) = tiny.away(network, "soft:length=3")
        decoder = tiny.ids(2, 4, seed=5)
        with ts.attach(network, soft):
            got = network(**given, decoder_input_ids=decoder).logits
        for row, ids in enumerate(rows_of(given)):
            whole = torch.cat([soft.tensors["embeddings"][None], network.get_input_embeddings()(ids)], 1)
            close(got[row], network(inputs_embeds=whole, decoder_input_ids=decoder[row : row + 1]).logits[0])


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


@torch.no_grad()
def test_where_blocks_of_keys_are_chosen_deltas_act_and_attention_stays_the_family_s() -> None:
    with tiny.Float64():
        network, ids = model("minimax_m3_vl_text"), tiny.ids(2, 30)
        bare = network(ids).logits
        with ts.attach(network, ts.LoRA(rank=2, sites=("all-linear",)), ts.Adapter(sites=("all-linear",))) as tuned:
            close(network(ids).logits, bare)
            with quick_to_train(network, "bfloat16"):
                close(network(ids).logits, bare)
            for value in tuned.parameters():
                value.add_(0.1)
            assert (network(ids).logits - bare).abs().max() > 1e-3
        for layer in network.model.layers[1:]:
            layer.self_attn.indexer.topk_blocks = 99
        assert (network(ids).logits - bare).abs().max() > 1e-3  # a choice that is lost would be seen
