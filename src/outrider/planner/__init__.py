"""Whether a draft pays on this machine, which one and how long: measured, predicted, written down."""
