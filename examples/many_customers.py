"""One model, one batch, a different artifact for every row."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tunescope as ts

NAME = sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2"

tokenizer = AutoTokenizer.from_pretrained(NAME, padding_side="left")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(NAME)

# What each customer's tuning left: here fresh ones, so that nothing is to be downloaded.
for customer, specs in {"anna": [ts.Prefix(length=10)], "ben": [ts.LoRA(rank=4), ts.Prefix(length=3)]}.items():
    with ts.attach(model, *specs, tokenizer=tokenizer, seed=len(customer)) as tuned:
        ts.save(f"customers/{customer}", tuned.artifacts, model=model, tokenizer=tokenizer)

bank = ts.Bank.folder("customers", hot=2**28)  # read when first asked for, at most 256 MB at hand
batch = tokenizer(["a gorgeous film", "dull", "it moves"], return_tensors="pt", padding=True)
with ts.attach(model, bank, tokenizer=tokenizer), torch.inference_mode():
    written = model.generate(**batch, rows=["anna", "ben", None], max_new_tokens=5, do_sample=False)
    for customer, row in zip(("anna", "ben", "nobody's"), written, strict=True):
        print(f"{customer}: {tokenizer.decode(row, skip_special_tokens=True)!r}")
