#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Without one of its fences, a copy fails its test: BUILD_DIR SIM_DIR.
exec python3 "$(dirname "$0")/../mutants/mutants.py" -o "$1" --fences
