"""Llama and what shares its architecture: SmolLM2, Mistral."""

from outrider.models.architectures.base import DECODER_RULES, Architecture
from outrider.models.architectures.traits import plain

# Converters to GGUF permute the rows of q and k so that the pairs of the rotation are neighbours.
LLAMA = Architecture("llama", ("llama", "mistral"), "interleaved", DECODER_RULES, plain)
