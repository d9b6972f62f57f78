"""One thread a process: tiny models gain nothing from more, and the runs of others lose."""

import torch

torch.set_num_threads(1)
