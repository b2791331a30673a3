"""Sluice for PyTorch training scripts: one line makes a script a rank of its site.

    import sluice
    handle = sluice.attach(model, optimizer, tokens_per_step=batch * context)

Without SLUICE_GATEWAY in the environment that line does nothing and says so once. Nothing here ever stops training: a failure of Sluice is
logged (logger "sluice") and the script trains on alone.
"""

from sluice.attaching import attach
from sluice.handle import Handle

__all__ = ["Handle", "attach"]
