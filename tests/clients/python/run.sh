#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Python module with PyTorch, CuPy, Numba, JAX and cuda.core, on a GPU; at most four minutes.
#   run.sh [PROGRAM...]      those files without their .py, such as torch_forms
# LIBRARY=: the directory of libgdrapi.so.2 (build); PYTHON= (python3); PYTHONPATH=, of the module (python). A program
# whose framework is missing is a skip. Ends with `N passed, N failed, N skipped`; exit 1 if a test failed, 77 if none
# ran.
set -u
cd "$(dirname "$0")/../../.." || exit 1
limit=240 passed=0 failed=0 skipped=0
python=${PYTHON:-python3}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
library=$(realpath "${LIBRARY:-build}") && [ -e "$library/libgdrapi.so.2" ] ||
	{ echo "no libgdrapi.so.2 in ${LIBRARY:-build}: make lib, or LIBRARY="; exit 1; }
export LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONPATH=${PYTHONPATH:-$PWD/python}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4

# program NAME FILE [VARIABLE=VALUE...]: the tests of a file under a framework's own settings
program() {
	local name=$1 file=$2 left=$((limit - SECONDS)) rc line p f s
	shift 2
	[ ${#wanted[@]} = 0 ] || [[ " ${wanted[*]} " == *" $file "* ]] || return 0
	if [ "$left" -lt 10 ]; then
		failed=$((failed + 1))
		echo "not ok - $name: no time is left"
		return
	fi
	echo "# $name"
	env "$@" timeout -k 5 $((left < 75 ? left : 75)) "$python" "tests/clients/python/$file.py" >"$log" 2>&1
	rc=$?
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
	if [ "$rc" = 77 ]; then
		skipped=$((skipped + 1))
		echo "ok - $name # SKIP $(tail -n 1 "$log")"
		return
	fi
	grep -E '^(not ok|#|ok .*# SKIP)' "$log"
	if [ -z "$line" ] || { [ "$rc" != 0 ] && [[ $line == *" 0 failed"* ]]; }; then
		failed=$((failed + 1))
		echo "not ok - $name ends by $rc"
		tail -n 15 "$log" | sed 's/^/# /'
	fi
	[ -n "$line" ] || line="$(grep -c '^ok ' "$log") passed, $(grep -c '^not ok ' "$log") failed, 0 skipped"
	read -r p f s <<<"${line//[a-z,]/}"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	echo "# $name: $line, at $SECONDS s"
}

wanted=("$@")
expandable=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
program "torch, forms" torch_forms
program "torch, forms, expandable segments" torch_forms "$expandable"
program "torch, forms, cudaMallocAsync" torch_forms PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
program "torch, lifetimes" torch_lifetimes
program "torch, lifetimes, expandable segments" torch_lifetimes "$expandable"
program "torch, streams and graphs" torch_streams
program "torch, processes" torch_processes
program CuPy cupy_arrays
program Numba numba_arrays
program JAX jax_arrays
program "JAX, without a pool" jax_arrays XLA_PYTHON_CLIENT_ALLOCATOR=platform
program cuda.core cuda_core
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
[ "$passed" != 0 ] || exit 77
