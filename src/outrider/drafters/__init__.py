"""Everything that proposes draft tokens. The contract is :mod:`outrider.drafters.base`."""
