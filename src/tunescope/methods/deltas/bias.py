"""BitFit (Ben Zaken et al. 2022, arXiv:2106.10199): every bias is trained, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunescope.methods.artifact import PatchDelta
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{benzaken2022bitfit,
  author = {Ben Zaken, Elad and Goldberg, Yoav and Ravfogel, Shauli},
  title = {{BitFit}: Simple Parameter-efficient Fine-tuning for Transformer-based Masked Language-models},
  booktitle = {ACL},
  year = {2022},
  eprint = {2106.10199},
  archivePrefix = {arXiv},
}
"""

CHOOSING = ("e_score_correction_bias", "expert_bias")  # added to the scores by which experts are chosen


@dataclass(frozen=True)
class Bias(PatchDelta):
    """A change to every bias that the model has, those of its layer norms among them; some families have none.

    A bias is a parameter whose own name is "bias" or ends with "_bias", such as DeBERTa's q_bias. An encoder's pooler
    is left as it is, whatever reads it, and so is what only chooses experts, which no gradient reaches.

    Tensors: by a bias's name in the model what is added to it, of its shape, such as "h.0.ln_1.bias" (width,); zeros
    at first.

    Source: Ben Zaken et al. 2022, arXiv:2106.10199, section 3.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 5e-3, 2e-2)
    served_as: ClassVar[str] = "merged"

    @property
    def formula(self) -> Form:
        return Form("bias", "parallel", "every map and norm that has a bias", "h + change")

    def selects(self, name: str) -> bool:
        own = name.rpartition(".")[2]
        return (own == "bias" or own.endswith("_bias")) and own not in CHOOSING
