"""Other engines, measured in the same run as ours."""
