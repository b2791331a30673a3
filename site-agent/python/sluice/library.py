"""libsluice_agent.so through ctypes: the structs and functions of sluice_agent.h, no compiled part of our own."""

import ctypes
import os
import pathlib

ABI_VERSION = 1
FLOAT32 = 0
OUTCOMES = ("inner", "committed", "left_out", "caught_up", "skipped", "solo")


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("rank", ctypes.c_uint32), ("ranks", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("gateway", ctypes.c_char_p), ("certificate_file", ctypes.c_char_p), ("key_file", ctypes.c_char_p),
                ("authority_file", ctypes.c_char_p), ("listen", ctypes.c_char_p), ("start_timeout_us", ctypes.c_uint64),
                ("group_timeout_us", ctypes.c_uint64)]


class StepResult(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("outcome", ctypes.c_uint32), ("tensors_written", ctypes.c_uint32),
                ("sites_counted", ctypes.c_uint32), ("round", ctypes.c_uint64), ("exchange_us", ctypes.c_uint64)]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("is_connected", ctypes.c_uint32), ("is_solo", ctypes.c_uint32),
                ("inner_steps", ctypes.c_uint32)] + [(name, ctypes.c_uint64) for name in (
                    "round", "steps", "steps_since_round", "rounds_committed", "rounds_left_out", "rounds_skipped", "catch_ups",
                    "solo_boundaries", "deltas_withheld", "reconnects", "values", "bytes_sent", "bytes_received", "exchange_us",
                    "encode_us", "decode_us", "wait_us", "group_us")]


def candidate_paths():
    """Where the library may be, best first: named by the environment, beside this package, in a build of this checkout, on the system."""
    for variable in ("SLUICE_LIBRARY", "SLUICE_AGENT_LIBRARY"):
        if os.environ.get(variable):
            yield os.environ[variable]
            return
    if os.environ.get("SLUICE_BINARY_DIR"):
        yield os.path.join(os.environ["SLUICE_BINARY_DIR"], "site-agent", "libsluice_agent.so")
    here = pathlib.Path(__file__).resolve().parent
    yield str(here / "libsluice_agent.so")
    if len(here.parents) > 2:
        for build in ("release", "dev"):
            yield str(here.parents[2] / "build" / build / "site-agent" / "libsluice_agent.so")
    yield "libsluice_agent.so.1"


def load_library():
    """The loaded library with its functions typed. Raises OSError when none is found, RuntimeError when it is of another version."""
    paths = list(candidate_paths())
    for path in paths:
        if os.sep in path and not os.path.exists(path):
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            if len(paths) == 1 or os.sep in path:
                raise
            continue
        declare(library)
        return library
    raise OSError("libsluice_agent.so was not found; set SLUICE_LIBRARY to its path (looked at: " + ", ".join(paths) + ")")


def declare(library):
    agent, text = ctypes.c_void_p, ctypes.c_char_p
    signatures = {
        "abi_version": (ctypes.c_uint32, []),
        "create": (agent, [ctypes.POINTER(Options)]),
        "add_tensor": (ctypes.c_int, [agent, text, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32, ctypes.c_void_p]),
        "start": (ctypes.c_int, [agent]),
        "next_is_boundary": (ctypes.c_int, [agent]),
        "step": (ctypes.c_int, [agent, ctypes.c_uint64, ctypes.c_double, ctypes.POINTER(StepResult)]),
        "exchange": (ctypes.c_int, [agent, ctypes.POINTER(StepResult)]),
        "stats": (ctypes.c_int, [agent, ctypes.POINTER(Statistics)]),
        "last_error": (text, [agent]),
        "announcement": (text, [agent, ctypes.POINTER(ctypes.c_uint64)]),
        "save_state": (ctypes.c_int, [agent, text]),
        "load_state": (ctypes.c_int, [agent, text]),
        "destroy": (None, [agent]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, "sluice_agent_" + name)
        function.restype, function.argtypes = result, arguments
    version = library.sluice_agent_abi_version()
    if version < ABI_VERSION:
        raise RuntimeError(f"libsluice_agent.so has interface version {version}, this package needs {ABI_VERSION}")
