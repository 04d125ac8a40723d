"""Proof, for this machine and these models, that what is emitted follows the target's law."""
