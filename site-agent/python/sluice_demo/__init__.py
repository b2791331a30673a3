"""The demo: three sites train one small GPT together through their gateways. `python -m sluice_demo --help`."""
