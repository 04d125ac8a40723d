"""Measurements: one script per question, each leaving one JSON document with its provenance."""
