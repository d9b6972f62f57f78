"""What one virtual token can make a fixed causal transformer do, by construction (Petrov et al. 2024, section 3).

>>> from tunescope.theory import constructions
>>> network = constructions.sequences(vocabulary=50, outputs=20)     # the same weights for all 50**20 sequences
>>> virtual = network.virtual_token(target)                   # target (20,) -> one vector
>>> constructions.verify(network, target).fraction
1.0

These are existence proofs with weights set by hand. They say what *some* network can be made to do from its input
alone; they say nothing of what gradient descent finds, or of what a given pretrained model can be made to do.
`docs/theory.md` has the words and the formulas around them.
"""

from tunescope.theory.constructions.capacity import Capacity, capacities, count_outputs
from tunescope.theory.constructions.check import Check, Wrong, verify
from tunescope.theory.constructions.network import Network
from tunescope.theory.constructions.theorems import maps, responses, sequences

__all__ = [
    "Capacity",
    "Check",
    "Network",
    "Wrong",
    "capacities",
    "count_outputs",
    "maps",
    "responses",
    "sequences",
    "verify",
]
