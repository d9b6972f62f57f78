"""What a prefix does inside attention: its share, and what is left of the pattern over the text."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tunescope as ts
from tunescope.probes.looks.prefix_bias import prefix_bias

NAME = sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2"

tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME)
inputs = tokenizer("A gorgeous, witty film.", return_tensors="pt")
start = ts.Prefix(length=4, init_from="text", text="Reviews of films, each with what it was.")

bare = ts.record(model, inputs, "weights")
with ts.attach(model, start, tokenizer=tokenizer):
    seen = ts.record(model, inputs, "weights", "value", "context_value")

for layer in sorted({name.rpartition(".")[0] for name in bare}, key=lambda name: int(name.split(".")[1])):
    context = seen[f"{layer}.context_value"].expand(len(inputs["input_ids"]), -1, -1, -1)
    values = torch.cat([context, seen[f"{layer}.value"]], dim=2)
    heads = seen[f"{layer}.weights"].shape[1]
    values = values.repeat_interleave(heads // values.shape[1], dim=1)  # grouped heads share theirs
    parts = prefix_bias(seen[f"{layer}.weights"], values, context.shape[2])
    moved = (parts.pattern - bare[f"{layer}.weights"]).abs().sum(-1).mean() / 2
    print(f"{layer}: {parts.share.mean():.2f} of attention on the prefix, pattern over the text moved by {moved:.1e}")
# In the first layer the pattern does not move: that is arithmetic. What it does above is measured.
