"""NEFTune's noise on embeddings while training: on a text, not on what a context puts in front of it."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from training import arguments
from transformers.integrations.neftune import neftune_post_forward_hook

import tunescope as ts

TEXT, WORDS = tiny.ids(2, 7), torch.tensor([[5, 6]])


@pytest.mark.parametrize("beside", [ts.LoRA(rank=2), ts.Full()], ids=["lora", "full"])  # a table at rest, a tuned one
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_text_context_is_its_words_in_the_row_without_noise(family: str, beside: ts.LoRA | ts.Full) -> None:
    model = tiny.make(family).train()
    table: Any = model.get_input_embeddings()
    words = table(WORDS).expand(2, -1, -1)
    table.neftune_noise_alpha = 5.0
    table.register_forward_hook(neftune_post_forward_hook)
    torch.manual_seed(0)
    noisy = table(TEXT)
    assert (noisy - table.eval()(TEXT)).abs().max() > 0.1
    name = "last_hidden_state" if family == "bert" else "logits"
    expected = model(inputs_embeds=torch.cat([words, noisy], 1))[name][:, 2:].detach()
    table.train()
    with ts.attach(model, ts.Text(text="w5 w6"), beside, tokenizer=tiny.tokenizer()) as tuned:
        tuned.train()
        torch.manual_seed(0)
        got = model(TEXT)[name].detach()
    assert table.training
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_a_trainer_with_neftune_trains_behind_a_text(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.float32)
    rows = [{"input_ids": row, "labels": row} for row in TEXT]
    with ts.attach(model, ts.Text(text="w5 w6"), ts.LoRA(rank=2), tokenizer=tiny.tokenizer()) as tuned:
        with tuned.registered():
            tf.Trainer(model, arguments(tmp_path, neftune_noise_alpha=5.0), train_dataset=rows).train()
        assert all(bool(value.isfinite().all()) and bool(value.any()) for value in tuned.parameters())
