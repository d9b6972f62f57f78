"""Contexts on families with habits of their own: keywords kept back, queries cut, chunks, windows, writes in place."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor
from transformers.masking_utils import eager_mask

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


def jamba() -> Any:
    return tf.JambaConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
    )


def vit() -> Any:
    layers = {"num_hidden_layers": 2, "num_attention_heads": 3}
    return tf.ViTConfig(hidden_size=24, intermediate_size=40, image_size=8, patch_size=4, **layers)


def whisper() -> Any:
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return tf.WhisperConfig(
        vocab_size=tiny.VOCAB,
        num_mel_bins=8,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_source_positions=6,
        max_target_positions=32,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **special,
    )


def longt5(kind: str = "local") -> Any:
    return tf.LongT5Config(
        vocab_size=tiny.VOCAB,
        d_model=24,
        d_kv=6,
        d_ff=40,
        num_layers=2,
        num_heads=3,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
        encoder_attention_type=kind,
        local_radius=7,
    )


def clip() -> Any:
    layers = {"num_hidden_layers": 2, "num_attention_heads": 3, "projection_dim": 24}
    return tf.CLIPTextConfig(**SMALL, **layers)


CONFIGS = {
    "jamba": jamba,
    "vit": vit,
    "whisper": whisper,
    "longt5": longt5,
    "clip_text_model": clip,
    "bigbird_pegasus": lambda: tf.BigBirdPegasusConfig(**tiny.BART_LIKE, attention_type="original_full"),
    "stablelm": lambda: tf.StableLmConfig(**tiny.LLAMA_LIKE),
    "nemotron": lambda: tf.NemotronConfig(**tiny.LLAMA_LIKE),
    "llama": lambda: tf.LlamaConfig(**tiny.LLAMA_LIKE),
    "gpt2": lambda: tf.GPT2Config(**tiny.DECODER, n_embd=24, n_layer=2, n_head=3, n_positions=64),
    "gemma4_text": gemma4,
    "llama4_text": llama4,
    "ctrl": lambda: tf.CTRLConfig(**tiny.DECODER, n_positions=64, n_embd=24, dff=40, n_layer=2, n_head=3),
}


AUTO = {
    "vit": tf.AutoModel,
    "clip_text_model": tf.AutoModel,
    "whisper": tf.AutoModelForSpeechSeq2Seq,
    "longt5": tf.AutoModelForSeq2SeqLM,
    "bigbird_pegasus": tf.AutoModelForSeq2SeqLM,
}


def model(family: str) -> Any:
    return tiny.build(AUTO.get(family, tf.AutoModelForCausalLM), CONFIGS[family]())


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


tf.AttentionInterface.register("literal", literal)
tf.AttentionMaskInterface.register("literal", eager_mask)


def layers_of(network: Any) -> dict[str, Any]:
    """ "encoder.0.self" -> the module that computes it, by transformers' own names."""
    found = {}
    for stack in ("encoder", "decoder") if network.config.is_encoder_decoder else ("",):
        seen = {"self": 0, "cross": 0}
        for path, one in network.named_modules():
            if type(one).__name__.endswith("Attention") and (not stack or f"{stack}.layers" in path):
                which = "cross" if path.endswith("encoder_attn") else "self"
                kind = stack or ("decoder" if "CausalLM" in type(network).__name__ else "encoder")
                found[f"{kind}.{seen[which]}.{which}"] = one
                seen[which] += 1
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
        network.set_attn_implementation("literal")
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
def test_longt5_takes_a_soft_prompt_as_the_same_embeddings_in_the_row() -> None:
    with tiny.Float64():
        network, given = model("longt5"), padded("right")
        (soft,) = tiny.away(network, "soft:length=3")
        decoder = tiny.ids(2, 4, seed=5)
        with ts.attach(network, soft):
            got = network(**given, decoder_input_ids=decoder).logits
        for row, ids in enumerate(rows_of(given)):
            whole = torch.cat([soft.tensors["embeddings"][None], network.get_input_embeddings()(ids)], 1)
            close(got[row], network(inputs_embeds=whole, decoder_input_ids=decoder[row : row + 1]).logits[0])


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
