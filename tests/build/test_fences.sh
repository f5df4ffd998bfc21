#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The fences' part of dev/mutants.sh: BUILD_DIR SIM_DIR.
exec bash "$(dirname "$0")/../../dev/mutants.sh" fences "$@"
