"""Decoders whose class does not say so: BERTs told to decode, bodies without a head, models of text and pictures."""

import warnings
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from odd_families import close
from traces import assert_no_trace, trace

import tunescope as ts
from tunescope.attachment import exactness
from tunescope.errors import Note
from tunescope.exchange.compare_outputs import difference, outputs, sample
from tunescope.models.anatomy import anatomy, kind
from tunescope.probes.see import _bare_inputs
from tunescope.tasks.answers.batches import decoder_keywords

# a small one of text and pictures is not made, which is told
pytestmark = pytest.mark.filterwarnings("ignore:.*was not tried:tunescope.errors.Note")

IDS = {"vocab_size": tiny.VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = {**IDS, **NO_DROPOUT, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT |= {"intermediate_size": 40, "max_position_embeddings": 64}
ROBERTA = BERT | {"pad_token_id": 1, "bos_token_id": 0}
BLOOM = {**IDS, "hidden_size": 24, "n_layer": 2, "n_head": 4}
CODEGEN = {**IDS, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_ctx": 64, "rotary_dim": 4}
TEXT = {**tiny.DECODER, **IDS, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "head_dim": 6}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
SIGHT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
SIGHT |= {"image_size": 8, "patch_size": 4, "num_channels": 3}


def gemma3() -> Any:
    layers = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 6}
    sight = tf.SiglipVisionConfig(**SIGHT)
    told = tf.Gemma3TextConfig(**TEXT, **layers)
    return tf.Gemma3Config(vision_config=sight, text_config=told, mm_tokens_per_image=4, image_token_id=60)


def paligemma() -> Any:
    sight = tf.SiglipVisionConfig(**SIGHT, vision_use_head=False)
    told = tf.GemmaConfig(**TEXT)
    made = tf.PaliGemmaConfig(vision_config=sight, text_config=told, image_token_id=60, projection_dim=24)
    made.vocab_size = tiny.VOCAB
    return made


MADE = {
    "bert": lambda: tf.BertLMHeadModel(tf.BertConfig(**BERT, is_decoder=True)),
    "bert's body": lambda: tf.BertModel(tf.BertConfig(**BERT, is_decoder=True)),
    "roberta": lambda: tf.RobertaForCausalLM(tf.RobertaConfig(**ROBERTA, is_decoder=True)),
    "xlm-roberta": lambda: tf.XLMRobertaForCausalLM(tf.XLMRobertaConfig(**ROBERTA, is_decoder=True)),
    "bloom's body": lambda: tf.BloomModel(tf.BloomConfig(**BLOOM)),
    "codegen's body": lambda: tf.CodeGenModel(tf.CodeGenConfig(**CODEGEN)),
    "gemma3 of text and pictures": lambda: tf.Gemma3ForConditionalGeneration(gemma3()),
}


def made(name: str) -> Any:
    torch.manual_seed(0)
    model = MADE[name]().double().eval()
    for value in model.parameters():  # norms and biases too are none that a fresh model has
        value.data.add_(0.1 * torch.randn_like(value))
    return model


def padded_left() -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, :3] = 0
    return {"input_ids": tiny.ids(2, 7) * mask + (1 - mask), "attention_mask": mask}


@torch.no_grad()
@pytest.mark.parametrize("name", MADE)
def test_soft_is_embeddings_in_the_row_whole_padded_on_the_left_and_in_two_calls(name: str) -> None:
    with tiny.Float64():
        model, given = made(name), padded_left()
        assert kind(model) == "decoder"
        (soft,) = tiny.away(model, "soft:length=3", by=1.0)
        front, table = soft.tensors["embeddings"][None], model.get_input_embeddings()
        rows = [ids[mask.bool()][None] for ids, mask in zip(*given.values(), strict=True)]
        alone = [model(inputs_embeds=torch.cat([front, table(row)], 1))[0][0, 3:] for row in rows]
        mask = given["attention_mask"].bool()
        with ts.attach(model, soft):
            for row, wanted in zip(rows, alone, strict=True):
                close(model(row)[0][0], wanted)
            whole = model(**given, use_cache=False)[0]
            first = model(given["input_ids"][:, :4], attention_mask=given["attention_mask"][:, :4], use_cache=True)
            cache = first.past_key_values
            rest = model(given["input_ids"][:, 4:], attention_mask=given["attention_mask"], past_key_values=cache)
        for got in (whole, torch.cat([first[0], rest[0]], 1)):
            for row, wanted in enumerate(alone):
                close(got[row, mask[row]], wanted)


@torch.no_grad()
@pytest.mark.parametrize("name", MADE)
def test_a_prefix_leaves_positions_to_the_model_and_an_infix_and_lora_fit(name: str) -> None:
    with tiny.Float64():
        model, given = made(name), padded_left()
        rows = [ids[mask.bool()][None] for ids, mask in zip(*given.values(), strict=True)]
        with ts.attach(model, *tiny.away(model, "prefix:length=3,positions=same")):
            whole = model(**given)[0]
            for row, ids in enumerate(rows):
                close(whole[row, given["attention_mask"][row].bool()], model(ids)[0][0])
        with ts.attach(model, ts.LoRA(rank=2, sites=("all-linear",)), ts.Infix(length=2)) as tuned:
            assert model(**given)[0].isfinite().all()
            assert all(key.startswith("decoder.") for key in tuned.artifacts[1].tensors)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "bert's body", "roberta"])
def test_sites_of_a_bert_that_decodes_are_those_of_its_file_in_a_decoder(name: str) -> None:
    model = made(name)
    with ts.attach(model, ts.LoRA(rank=2, alpha=4, sites=("attn.q",))) as tuned:
        tensors = tuned.artifacts[0].tensors
        assert set(tensors) == {f"decoder.{index}.self.q:{key}" for index in (0, 1) for key in "ab"}
        for value in tensors.values():
            value += 0.1
        got = model(tiny.ids())[0]
    for index, layer in enumerate(model.base_model.encoder.layer):
        low, up = (tensors[f"decoder.{index}.self.q:{key}"] for key in "ab")
        layer.attention.self.query.weight += 4 / 2 * up @ low
    close(got, model(tiny.ids())[0])


@torch.no_grad()
def test_a_prefix_of_bloom_with_its_head_fits_bloom_without_it() -> None:
    torch.manual_seed(0)
    model = tf.BloomForCausalLM(tf.BloomConfig(**BLOOM)).double().eval()
    (prefix,) = tiny.away(model, "prefix:length=3")
    with ts.attach(model, prefix):
        wanted = model(tiny.ids(), output_hidden_states=True).hidden_states[-1]
    bare = tf.BloomModel(model.config).double().eval()
    bare.load_state_dict(model.transformer.state_dict())
    with ts.attach(bare, prefix):
        close(bare(tiny.ids())[0], wanted)


def test_an_encoder_stays_one_whatever_else_its_config_says() -> None:
    small = {"dim": 16, "n_heads": 2, "n_layers": 1, "hidden_dim": 16, "vocab_size": 64}
    for model in (
        tf.DistilBertModel(tf.DistilBertConfig(**small, is_decoder=True)),  # which does not read it
        tf.BertModel(tf.BertConfig(**BERT)),
        tf.RobertaForMaskedLM(tf.RobertaConfig(**ROBERTA)),
        tf.BertForSequenceClassification(tf.BertConfig(**BERT)),
        tf.AlbertModel(tf.AlbertConfig(**BERT, embedding_size=8)),
        tf.XLNetModel(tf.XLNetConfig(vocab_size=64, d_model=16, n_layer=1, n_head=2, d_inner=16)),
        tf.Gemma3TextModel(tf.Gemma3TextConfig(**TEXT, use_bidirectional_attention=True)),
    ):
        assert kind(model) == "encoder", type(model)
    assert kind(tf.BertConfig(**BERT)) == "encoder" and kind(tf.BertConfig(**BERT, is_decoder=True)) == "decoder"


@torch.no_grad()
def test_two_berts_as_an_encoder_decoder_are_one_as_before() -> None:
    both = tf.EncoderDecoderConfig.from_encoder_decoder_configs(tf.BertConfig(**BERT), tf.BertConfig(**BERT))
    torch.manual_seed(0)
    model = tf.EncoderDecoderModel(both).double().eval()
    found = anatomy(model)
    assert found.kind == "encoder-decoder" and list(found.entries) == ["encoder", "decoder"]
    given = {"input_ids": tiny.ids(), "decoder_input_ids": tiny.ids(2, 4, seed=5)}
    (soft,) = tiny.away(model, "soft:length=3", by=1.0)
    front = soft.tensors["embeddings"].expand(2, -1, -1)
    whole = torch.cat([front, model.get_input_embeddings()(given["input_ids"])], 1)
    wanted = model(inputs_embeds=whole, decoder_input_ids=given["decoder_input_ids"]).logits
    with ts.attach(model, soft):
        close(model(**given).logits, wanted)


@torch.no_grad()
@pytest.mark.parametrize("of", [tf.BloomForSequenceClassification, tf.BertForSequenceClassification])
def test_a_head_in_a_decoder_s_classifier_reads_the_last_token_and_no_first(of: Any) -> None:
    torch.manual_seed(0)
    config = tf.BloomConfig(**BLOOM) if "Bloom" in of.__name__ else tf.BertConfig(**BERT, is_decoder=True)
    config.num_labels = 3
    model, ids = of(config).double().eval(), tiny.ids()
    (head,) = tiny.away(model, "head:n_labels=3,token=last")
    states = model.base_model(ids).last_hidden_state[:, -1]
    with ts.attach(model, head):
        close(model(ids).logits, states @ head.tensors["pooled:weight"].T + head.tensors["pooled:bias"])
    with pytest.raises(ts.UserError, match=r"reads an encoder; this model is a decoder.*Head\(token='last'\)"):
        ts.attach(model, ts.Head(n_labels=3, token="first"))


@torch.no_grad()
def test_positions_from_0_are_refused_where_a_family_counts_from_behind_the_padding_index() -> None:
    model, ids = made("roberta"), tiny.ids()
    given = {"do_sample": False, "max_new_tokens": 4, "pad_token_id": 1, "eos_token_id": None}
    mask = torch.ones_like(ids)
    with ts.attach(model, *tiny.away(model, "soft:length=3", by=1.0)):
        for call in (lambda: model(ids, position_ids=torch.arange(7)[None]), lambda: model.generate(ids, **given)):
            with pytest.raises(
                ts.UserError, match=r"begin before 2, from where 'roberta' counts.*clamp\(min=0\) \+ 2;"
            ):
                call()
        told = (mask.cumsum(1) - 1).clamp(min=0) + 2
        got, wanted = model.generate(ids, attention_mask=mask, position_ids=told, **given), ids
        for _ in range(4):
            wanted = torch.cat([wanted, model(wanted, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        assert torch.equal(got, wanted)


@torch.no_grad()
def test_text_that_looks_both_ways_before_it_is_written_on_takes_no_soft_prompt_and_a_prefix() -> None:
    with tiny.Float64():
        torch.manual_seed(0)
        model = tf.PaliGemmaForConditionalGeneration(paligemma()).double().eval()
        assert kind(model) == "decoder"
        for context in (ts.Soft(length=3), ts.Text(text="w3")):
            with pytest.raises(
                ts.UserError, match=r"(Soft|Text).*'paligemma'.*look at those behind them too.*a prefix"
            ):
                ts.attach(model, context)
        ids = tiny.ids()
        (prefix,) = tiny.away(model, "prefix:length=3,positions=same")
        bare = model(ids, token_type_ids=torch.zeros_like(ids)).logits
        with ts.attach(model, prefix):
            assert (model(ids, token_type_ids=torch.zeros_like(ids)).logits - bare).abs().max() > 1e-3


@pytest.mark.parametrize("used", [0, 3])
def test_positions_of_a_roberta_decoder_count_from_behind_its_padding_wherever_they_are_made(used: int) -> None:
    """Transformers' own, which its forward pass makes of ids: real tokens so far, and the padding id."""
    model = tiny.build(tf.AutoModelForCausalLM, tf.RobertaConfig(**ROBERTA, is_decoder=True))
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 1, 1]])
    mask = (ids != 1).long()
    wanted = torch.tensor([[2, 3, 4, 5], [2, 3, 3, 3]])
    made = decoder_keywords(model, mask, None)
    assert torch.equal(made["position_ids"][mask.bool()], wanted[mask.bool()])
    with torch.no_grad():
        own, told = model(input_ids=ids, attention_mask=mask).logits, model(ids, attention_mask=mask, **made).logits
    close(told[mask.bool()], own[mask.bool()])
    bare = _bare_inputs(model, used, {"input_ids": ids, "attention_mask": mask})
    assert isinstance(bare, dict)
    if used:
        assert torch.equal(bare["position_ids"][mask.bool()], (wanted + used)[mask.bool()])


def test_a_prefix_draws_its_first_keys_from_the_words_of_the_text_model() -> None:
    """The outer config of a model of text and pictures may count others: here more than its table has."""
    config = paligemma()
    config.vocab_size = 50 * tiny.VOCAB
    model = tiny.build(tf.AutoModelForImageTextToText, config)
    with ts.attach(model, ts.Prefix(length=3)) as tuned:
        assert len(tuned.artifacts[0].tensors) == 4


def test_a_config_alone_says_what_its_model_is() -> None:
    """The module is the oracle: BERT's encoder for generation and XLNet look both ways, and so may a Gemma."""
    both_ways = tf.Gemma3TextConfig(**TEXT, use_bidirectional_attention=True)
    told = tf.BertGenerationConfig(**BERT, is_decoder=True)
    configs = [gemma3(), tf.BloomConfig(**BLOOM), tf.BertGenerationConfig(**BERT), told, tf.XLNetConfig(n_layer=2)]
    for config in (*configs, both_ways):
        with torch.device("meta"):
            assert kind(config) == kind(tf.AutoModel.from_config(config)), config
    named = gemma3()
    named.architectures = ["Gemma3ForConditionalGeneration"]
    assert kind(gemma3()) == kind(named) == "decoder"


def test_that_no_small_model_of_text_and_pictures_is_tried_is_told_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(exactness, "_TOLD", set())
    with pytest.warns(Note) as told:
        ts.attach(made("gemma3 of text and pictures"), ts.Prefix(length=2), ts.Soft(length=3)).detach()
    (said,) = [str(one.message) for one in told if isinstance(one.message, Note)]
    assert "in family 'gemma3' " in said and "was not tried: its configuration does not say how to make a" in said
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        ts.attach(made("gemma3 of text and pictures"), ts.Prefix(length=2)).detach()  # loaded once more


@torch.no_grad()
def test_a_prefix_of_words_has_its_text_behind_it_where_rotary_positions_lie_within_the_text_model() -> None:
    model, ids = made("gemma3 of text and pictures"), tiny.ids(2, 2)
    front = torch.tensor([[5, 6]]).expand(2, -1)
    with tiny.Float64():
        wanted = model(torch.cat([front, ids], 1)).logits[:, 2:]
        with ts.attach(model, ts.Prefix(length=2, init_from="text", text="w5 w6"), tokenizer=tiny.tokenizer()):
            close(model(ids).logits, wanted)


@torch.no_grad()
@pytest.mark.parametrize("padded", ["by a mask", "by ids"])
def test_a_head_of_a_model_of_text_and_pictures_reads_the_last_token_of_the_text(padded: str) -> None:
    """Transformers' own class is the oracle, with the same map as its score."""
    config = gemma3()
    config.num_labels, config.text_config.pad_token_id = 3, 1
    torch.manual_seed(0)
    model = tf.Gemma3ForSequenceClassification(config).double().eval()
    given = padded_left() if padded == "by a mask" else {"input_ids": padded_left()["input_ids"].flip(1)}
    with tiny.Float64():
        (head,) = tiny.away(model, "head:n_labels=3,token=last,bias=false")
        with ts.attach(model, head):
            got = model(**given).logits
        model.score.weight.copy_(head.tensors["pooled:weight"])
        close(got, model(**given).logits)


@torch.no_grad()
def test_a_text_to_compare_outputs_on_is_of_the_words_of_the_text_model() -> None:
    model = made("gemma3 of text and pictures")
    (lora,) = tiny.away(model, "lora:rank=2")
    with tiny.Float64():
        given = sample(model)
        bare = model(**given).logits
        close(outputs(model), bare)
        assert given["input_ids"].shape == (2, 8) and difference(outputs(model, [lora]), bare) > 1e-3
    model.config.text_config.max_position_embeddings = 5
    assert sample(model, 2)["input_ids"].shape == (2, 3)


def test_each_part_of_a_model_has_the_attention_again_that_it_had() -> None:
    model = made("gemma3 of text and pictures")
    own = {"": "sdpa", "text_config": "eager", "vision_config": "sdpa"}
    model.set_attn_implementation(own)
    before = trace(model)
    with ts.attach(model, ts.Prefix(length=2)):
        assert model.config.text_config._attn_implementation == "tunescope"
    assert_no_trace(model, before)
    told = model.config.text_config._attn_implementation, model.config.vision_config._attn_implementation
    assert told == ("eager", "sdpa")


def made_paligemma() -> Any:
    torch.manual_seed(0)
    model = tf.PaliGemmaForConditionalGeneration(paligemma()).double().eval()
    for value in model.parameters():
        value.data.add_(0.1 * torch.randn_like(value))
    return model


@torch.no_grad()
@pytest.mark.parametrize("context", ["prefix:length=3,positions=same", "prefix:length=3,positions=after", "infix"])
def test_positions_that_a_family_makes_itself_count_no_padding_behind_a_context(context: str) -> None:
    with tiny.Float64():
        model, given = made_paligemma(), padded_left()
        artifacts = tiny.away(model, context)
        rows = [ids[mask.bool()][None] for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)]
        with ts.attach(model, *artifacts):
            alone = [model(ids, attention_mask=torch.ones_like(ids)).logits[0] for ids in rows]
            together = model(**given).logits
            begun = {name: value[:, :5] for name, value in given.items()}
            past = model(**begun, use_cache=True, output_start=torch.tensor([6, 6])).past_key_values
            later = given | {"input_ids": given["input_ids"][:, 5:], "past_key_values": past}
            in_two = model(**later, output_start=torch.tensor([6, 6])).logits
            by_body = model.model(**given)[0]
        with ts.attach(model, ts.Bank({"a": artifacts})):
            in_bank = model(**given, rows=["a", "a"]).logits
        for row, one in enumerate(alone):
            close(together[row, -len(one) :], one)
            close(in_bank[row, -len(one) :], one)
            close(in_two[row], one[-2:])
            close(model.lm_head(by_body)[row, -len(one) :], one)


@torch.no_grad()
def test_positions_that_the_caller_gives_stay_the_caller_s() -> None:
    model, given, seen = made_paligemma(), padded_left(), []
    columns = torch.arange(1, 8)[None]
    with ts.attach(model, *tiny.away(model, "prefix:length=3,positions=same")):
        decoder = anatomy(model).entries["decoder"]
        decoder.register_forward_pre_hook(lambda _, __, told: seen.append(told["position_ids"]), with_kwargs=True)
        model(**given, position_ids=columns)
        model(**given)
        model(given["input_ids"], position_ids=columns.repeat(2, 1))
    assert torch.equal(seen[0], columns) and torch.equal(seen[2], columns.repeat(2, 1))
    assert torch.equal(seen[1][1], torch.tensor([1, 1, 1, 1, 2, 3, 4]))


@torch.no_grad()
def test_a_family_that_counts_for_itself_counts_no_column_that_is_still_to_come() -> None:
    """PaliGemma makes positions of all columns; a mask of a static cache's whole length says no more of the text."""
    model, given = made_paligemma(), padded_left()
    mask = given.pop("attention_mask")
    whole = torch.cat([mask, torch.ones(len(mask), 5, dtype=torch.long)], 1)
    with ts.attach(model, *tiny.away(model, "prefix:length=3")):
        wanted, got = (
            model(**given, attention_mask=one, past_key_values=tf.StaticCache(model.config, whole.shape[1])).logits
            for one in (mask, whole)
        )
    torch.testing.assert_close(got[mask.bool()], wanted[mask.bool()], rtol=0, atol=1e-12)
