#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints kernels.ptx: kernels.cu as PTX of nvcc 13.0, for drivers from CUDA 10.1 and compute capability 7.0 on.
# Remake it when kernels.cu or barcopy_queue.cuh changes: perf/queue/ptx.sh >perf/queue/kernels.ptx
set -eu
cd "$(dirname "$0")/../.."
printf '// SPDX-License-Identifier: MIT\n// Made from kernels.cu by ptx.sh; read by ptx.c.\n'
# A line begins at each kernel and label, so that a change of one block leaves the lines of the others.
# shellcheck disable=SC2016 # $ is that of the labels
nvcc -arch=sm_75 -ptx -Iinclude -o - perf/queue/kernels.cu | sed 's|//.*||; s|.pragma.*||
	s|^.version.*|.version 6.4|; s|^.target.*|.target sm_70|; s|gdrcopy_[a-z_]*_param_|p|g
	s|_Z[A-Za-z0-9_]*message|message|g; s|$L__BB|$B|g' | tr -s '\n\t ' ' ' |
	sed 's/^ //; s/ \(\.visible\|\$B[0-9_]*:\)/\n\1/g' | fold -sw 118 | sed 's/ *$//'
echo
