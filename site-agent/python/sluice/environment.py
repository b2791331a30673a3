"""What the launcher tells a rank, read from the variables that launchers set already; none is invented for the rank."""

import os


def first_number(names, default):
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return default


def rank_of_site():
    """(rank, ranks) of this process within its site: torchrun's RANK and WORLD_SIZE, else Slurm's, else one rank."""
    return first_number(("RANK", "SLURM_PROCID"), 0), max(1, first_number(("WORLD_SIZE", "SLURM_NTASKS"), 1))


def gateway_address():
    """SLUICE_GATEWAY: "unix:/path" or "tls:host:port"; empty when Sluice is off."""
    return os.environ.get("SLUICE_GATEWAY", "").strip()


def agent_options():
    """Optional settings: files for tls:, the interface between the ranks, how long attach() waits."""
    seconds = os.environ.get("SLUICE_START_TIMEOUT", "")
    try:
        start_timeout_us = int(float(seconds) * 1e6) if seconds else 0
    except ValueError:
        start_timeout_us = 0
    return {"certificate_file": os.environ.get("SLUICE_CERTIFICATE", ""), "key_file": os.environ.get("SLUICE_KEY", ""),
            "authority_file": os.environ.get("SLUICE_AUTHORITY", ""), "listen": os.environ.get("SLUICE_LISTEN", ""),
            "start_timeout_us": start_timeout_us}
