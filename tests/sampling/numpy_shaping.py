"""What the core's shape_row is held against: each step of it in NumPy, on a row of its own."""

import numpy as np


def add_bias(row, ids, biases):
    """Add a bias to the logit of each of some tokens; ``ids`` are distinct."""
    row[ids] += biases


def penalise(row, ids, output_counts, params):
    """Apply the three penalties, the repetition penalty first, to distinct ids that occur so often in the output."""
    logits = row[ids].astype(np.float64)
    if params.repetition_penalty is not None:
        factor = params.repetition_penalty
        logits = np.where(logits > 0, logits / factor, logits * factor)
    if params.frequency_penalty is not None:
        logits -= params.frequency_penalty * output_counts
    if params.presence_penalty is not None:
        logits -= params.presence_penalty * (output_counts > 0)
    row[ids] = logits


def keep_allowed(row, allowed):
    """Exclude the tokens whose bit is 0, the lowest bit of a byte first."""
    row[~np.unpackbits(allowed, count=len(row), bitorder="little").astype(bool)] = -np.inf


def exclude(row, ids):
    """Exclude tokens."""
    row[ids] = -np.inf
