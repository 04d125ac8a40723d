"""Every error Outrider raises on purpose.

OutriderError
├── UsageError              an argument or a combination of arguments that cannot be honoured
│   └── ContextLengthError  a prompt, or a prompt and its answer, beyond what the model can hold
├── ModelFileError          a model file that is missing, damaged or not supported
├── DownloadError           a model that could not be fetched whole
├── IncompatibleDraftError  a draft that cannot draft for this target
├── EndpointError           another server that cannot be asked, or whose answer cannot be read
│   ├── RefusedError        a request that it will not answer
│   └── BudgetError         a request beyond the number agreed on
└── NumericalError          a model that produced NaN where a probability was needed

Each message names the value, the limit and what to do. The command line prints it on one line and exits with status 2.
"""


class OutriderError(Exception):
    """Root of every error that Outrider raises on purpose."""


class UsageError(OutriderError, ValueError):
    """An argument, or a combination of arguments, that cannot be honoured."""


class ContextLengthError(UsageError):
    """More tokens than the model's context can hold."""


class ModelFileError(OutriderError):
    """A model file that is missing, truncated, corrupt or of an unsupported kind."""


class DownloadError(OutriderError):
    """A model that could not be fetched whole and verified."""


class IncompatibleDraftError(OutriderError):
    """A draft that cannot draft for this target; the message says why."""


class NumericalError(OutriderError):
    """A model whose logits are not numbers; nothing is emitted from them."""


class EndpointError(OutriderError):
    """Another server that cannot be asked, or whose answer cannot be read."""


class RefusedError(EndpointError):
    """A request that another server will not answer, as for a field that it does not know."""


class BudgetError(EndpointError):
    """A request to another server beyond the number agreed on."""
