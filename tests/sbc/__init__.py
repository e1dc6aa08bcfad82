"""Simulation-based calibration: `make sbc` runs `run_sbc.py`."""
