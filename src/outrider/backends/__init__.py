"""What computes logits: the native core, and exact toy models."""
