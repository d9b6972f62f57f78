"""Speed and memory, side by side with peft in one run. One file a benchmark; `tools` holds what they share."""
