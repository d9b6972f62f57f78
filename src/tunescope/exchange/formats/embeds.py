"""A token context as embeddings, for servers that take a prompt's embeddings in the place of its text."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference, sample
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import added_rows, checkpoint, embeddings
from tunescope.exchange.serving.embeds_client import client
from tunescope.exchange.serving.refusals import check_tokenizer, check_tokens
from tunescope.models.anatomy import anatomy
from tunescope.system import files, tensor_files

ABOUT = "a soft prompt or words as embeddings, joined by the client with those of the text"
SERVES = "vLLM (--enable-prompt-embeds, /v1/completions), SGLang (--disable-radix-cache, input_embeds of /generate)"
TENSORS, NUMBERS, CLIENT = "prompt_embeds.safetensors", "prompt_embeds.json", "client_vllm.py"
KEY = "prompt_embeds"


def write(given: Outgoing, folder: Path) -> list[str]:
    """(n, width) embeddings as safetensors and as JSON numbers, and a client that joins them with a text's.

    Nothing is pickled here: the client packs what vLLM asks for when it sends.

    Raises:
        UserError: no decoder, no tokenizer, or an artifact that is no context of tokens.
    """
    check_tokens(given, "embeds", changes=False)
    check_tokenizer(given, "embeds")
    rows = embeddings.rows(given, given.model)
    if not bool(rows.isfinite().all()):
        raise UserError("The context holds numbers that are not finite: its training diverged. Export another run.")
    tensor_files.write(folder / TENSORS, {KEY: rows.cpu()})
    files.write(folder / NUMBERS, json.dumps(rows.double().tolist()).encode())
    begun, by = embeddings.begins(given), added_rows.scale(anatomy(given.model).table)
    files.write(folder / CLIENT, client(embeddings.start(given), by).encode())
    checkpoint.describe(given, "embeds", folder, prompt={"tokens": len(rows), "width": rows.shape[1], "scale": by})
    notes = [f"{len(rows)} embeddings of width {rows.shape[1]}, at the scale that transformers' first layer sees"]
    if begun:
        notes.append("the context begins the sequence, so the text behind it gets no start token")
    notes += embeddings.line_notes(given.artifacts, given.tokenizer)
    if by != 1:
        notes.append(
            f"this family multiplies embeddings by {by:g}: a server that does so with what it is given (vLLM's and "
            f"SGLang's Gemma and Gemma 2) must be sent all of them divided by it: SERVER_SCALES = True in {CLIENT}"
        )
    return notes


def check(given: Outgoing, folder: Path) -> float:
    """The model on the file's embeddings joined with those of the sample, against the attached model."""
    prompt: Tensor = load_file(folder / TENSORS)[KEY].to(given.model.device)
    said = torch.tensor(json.loads((folder / NUMBERS).read_text()), dtype=torch.float64)
    if not torch.equal(said.to(prompt.dtype), prompt.cpu()):
        return float("inf")
    ids = sample(given.model, len(prompt))["input_ids"]
    with resting(given.model), torch.no_grad():
        text = anatomy(given.model).table(ids)
        whole = torch.cat([prompt.expand(len(ids), -1, -1), text], dim=1)
        got = given.model(inputs_embeds=whole).logits[:, len(prompt) :]
        with attach(given.model, *given.artifacts):
            expected = given.model(input_ids=ids).logits
    return difference(got, expected)
