"""The README of a folder with a soft prompt as tokens: what to send."""

from __future__ import annotations

from tunescope.exchange.serving.prompt_tokenizer import Prompted

HEAD = """# A model with a soft prompt as tokens

A copy of the base model with {count} added tokens, `{first}` to `{last}` (ids {low} to {high}). Their embeddings are
the trained prompt. With them in front, the model computes what it did when it was tuned.
"""
CHAT = """
## Chat

The chat template puts them in front by itself: send messages as to the base model. With a template of your own, put
them in front of all that it writes.
"""
TEXT = """
## Text

Put the string in `prompt.txt` in front of every text, and let the server add no start token of its own:

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    prompt = open(FOLDER + "/prompt.txt", encoding="utf-8").read()
    ids = tokenizer(prompt + text, add_special_tokens=False, return_tensors="pt")
    model.generate(**ids)

With vLLM: POST /v1/completions with `"prompt": prompt + text` and `"add_special_tokens": false`.
{start}"""
SPACE = """It ends in a space, which this tokenizer needs before a text. Of a text that begins with a space or a special
token itself, send the ids: those of the prompt, then those of the text alone.
"""
IDS = """
## Text

With this tokenizer no string in front of a text gives the ids that the prompt was tuned with. Send ids:

    [{ids}] + tokenizer(text, add_special_tokens=False)["input_ids"]

vLLM takes them as the `prompt` of /v1/completions, SGLang as the `input_ids` of /generate.
"""
END = """
## What to know

- The tokens are no words. Their output logits are the mean of all others, so greedy decoding never writes one, and
  `generation_config.json` suppresses them. A server that does not read it takes `"logit_bias": {{"ID": -100}}`.
- A text that itself holds `{first}` is read as holding the prompt's token. Take it out of what strangers send.
"""


def page(made: Prompted, has_chat_template: bool) -> str:
    """Markdown."""
    first, count = made.first, len(made.tokens)
    start = ""
    if made.front:
        tokens = "".join(made.tokenizer.convert_ids_to_tokens(list(made.front)))
        start = f"The start token {tokens} is in it, behind the prompt, where it stood in tuning.\n"
    if made.text is not None and made.text.endswith(" "):
        start += SPACE
    names = {"first": made.tokens[0], "last": made.tokens[-1], "low": first, "high": first + count - 1, "count": count}
    text = IDS.format(ids=", ".join(map(str, made.ids))) if made.text is None else TEXT.format(start=start)
    return HEAD.format(**names) + (CHAT if has_chat_template else "") + text + END.format(**names)
