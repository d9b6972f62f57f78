"""A prefix in a training loop of your own: attach, train, save, and read back."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tunescope as ts

NAME = sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2"
ROWS = [
    "A gorgeous, witty film. It was great",
    "It drags from the first scene. It was terrible",
    "Warm, funny and wise. It was great",
    "One long yawn. It was terrible",
]

tokenizer = AutoTokenizer.from_pretrained(NAME, padding_side="left")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(NAME)
batch = tokenizer(ROWS, return_tensors="pt", padding=True)
labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
labels[:, :-1] = -100  # the last word alone is learnt

start = ts.Prefix(length=8, init_from="text", text="Reviews of films, each with what it was.")
with ts.attach(model, start, tokenizer=tokenizer) as tuned:
    optimizer = torch.optim.AdamW(tuned.train().parameters(), lr=1e-2)
    for step in range(20):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    tuned.eval()
    with torch.no_grad():
        trained = model(**batch).logits
    ts.save("reviews-prefix", tuned.artifacts, model=model, tokenizer=tokenizer)

with ts.attach(model, *ts.load("reviews-prefix"), tokenizer=tokenizer), torch.no_grad():
    print("largest difference after reading it back:", (model(**batch).logits - trained).abs().max().item())
