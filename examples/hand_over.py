"""A LoRA for those who do not run tunescope: a folder for peft, and merged weights for any server."""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

import tunescope as ts
from tunescope.exchange import convert

NAME = sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2"

tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME)
with ts.attach(model, ts.LoRA(rank=4), tokenizer=tokenizer) as tuned:
    for name, tensor in tuned.named_parameters().items():  # in place of training
        if name.endswith(":b"):
            tensor.data.normal_(std=0.02)
    ts.save("handed/artifact", tuned.artifacts, model=model, tokenizer=tokenizer)

(lora,) = ts.load("handed/artifact")
for form in ("peft", "merged"):
    done = convert.export(f"handed/{form}", [lora], to=form, model=model, tokenizer=tokenizer)
    print(f"{form}: outputs differ by at most {done.difference:.1e} once read back")
