"""Inverse frequencies of rotary position embeddings, with the scaling rules that models use.

Su et al., "RoFormer", eq. 15: pair ``i`` of ``rope_dim / 2`` turns by ``position * theta ** (-2 i / rope_dim)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from outrider.models.fields import Fields, shown

# Beyond these no model makes sense and double precision would overflow.
THETA = (1.0, 1e12)
_FACTOR = (1e-3, 1e6)


def inverse_frequencies(rope_dim: int, theta: float) -> list[float]:
    """Return ``[rope_dim / 2]`` unscaled inverse frequencies."""
    return [theta ** (-2.0 * i / rope_dim) for i in range(rope_dim // 2)]


def scaled_linearly(frequencies: Sequence[float], factor: float) -> list[float]:
    """Stretch positions by ``factor`` (position interpolation, Chen et al. 2023)."""
    return [frequency / factor for frequency in frequencies]


def scaled_as_llama3(
    frequencies: Sequence[float], *, factor: float, low_factor: float, high_factor: float, original_length: int
) -> list[float]:
    """Stretch long wavelengths by ``factor``, keep short ones, blend those between (Llama 3.1's reference code)."""

    def scale(frequency: float) -> float:
        turns = original_length * frequency / (2 * math.pi)  # full turns within the original context
        kept = min(1.0, max(0.0, (turns - low_factor) / (high_factor - low_factor)))
        return (1.0 - kept) * frequency / factor + kept * frequency

    return [scale(frequency) for frequency in frequencies]


def from_config_json(config: Fields, rope_dim: int, *, theta: float = 10000.0) -> tuple[float, ...]:
    """Return ``[rope_dim / 2]`` inverse frequencies as a Hugging Face ``config.json`` describes them.

    The scaling rule is in ``rope_scaling`` beside ``rope_theta``, or both are in ``rope_parameters``.

    Args:
        config: The configuration.
        rope_dim: How many elements of a head are rotated.
        theta: The base where the file gives none.
    """
    rules = config.section("rope_parameters") if config.has("rope_parameters") else config.section("rope_scaling")
    return from_rules(rules, rope_dim, theta=config.number("rope_theta", *THETA, theta))


def from_rules(rules: Fields, rope_dim: int, *, theta: float) -> tuple[float, ...]:
    """Return ``[rope_dim / 2]`` inverse frequencies as one object of rules in a ``config.json`` describes them.

    Args:
        rules: The object.
        rope_dim: How many elements of a head are rotated.
        theta: The base where the object gives none.
    """
    frequencies = inverse_frequencies(rope_dim, rules.number("rope_theta", *THETA, theta))
    kind = rules.text("rope_type", rules.text("type", "default"))
    if kind == "linear":
        frequencies = scaled_linearly(frequencies, rules.number("factor", *_FACTOR))
    elif kind == "llama3":
        low = rules.number("low_freq_factor", *_FACTOR)
        frequencies = scaled_as_llama3(
            frequencies,
            factor=rules.number("factor", *_FACTOR),
            low_factor=low,
            high_factor=rules.number("high_freq_factor", low, _FACTOR[1]),
            original_length=rules.integer("original_max_position_embeddings", 1, 2**31),
        )
    elif kind != "default":
        raise rules.error(_unsupported(kind))
    return tuple(frequencies)


def from_gguf(
    metadata: Fields, prefix: str, rope_dim: int, factors: Sequence[float] | None, *, theta: float = 10000.0
) -> tuple[float, ...]:
    """Return ``[rope_dim / 2]`` inverse frequencies as GGUF metadata describes them.

    Args:
        metadata: The file's metadata.
        prefix: The architecture's key prefix, such as ``"llama."``.
        rope_dim: How many elements of a head are rotated.
        factors: The values of ``rope_freqs.weight``, by which each inverse frequency is divided (how converters
            store the llama3 rule), or ``None``.
        theta: The base where the file gives none.
    """
    frequencies = inverse_frequencies(rope_dim, metadata.number(prefix + "rope.freq_base", *THETA, theta))
    kind = metadata.text(prefix + "rope.scaling.type", "none")
    # Files from before the key had a type: linear scaling alone.
    legacy = metadata.number(prefix + "rope.scale_linear", *_FACTOR, 1.0)
    if kind == "linear" or (kind == "none" and legacy != 1.0):
        factor = metadata.number(prefix + "rope.scaling.factor", *_FACTOR, legacy)
        frequencies = scaled_linearly(frequencies, factor)
    elif kind != "none":
        raise metadata.error(_unsupported(kind))
    if factors is None:
        return tuple(frequencies)
    if len(factors) != len(frequencies) or not all(_FACTOR[0] < f <= _FACTOR[1] for f in factors):
        raise metadata.error(
            f"rope_freqs.weight holds {len(factors)} values; it must hold {len(frequencies)}, each "
            f"above {_FACTOR[0]} and at most {_FACTOR[1]:.0f}: convert the model anew"
        )
    return tuple(frequency / factor for frequency, factor in zip(frequencies, factors, strict=True))


def _unsupported(kind: str) -> str:
    return (
        f"rope scaling {shown(kind)} is not supported; default, linear and llama3 are. "
        "Use a variant of the model without it"
    )
