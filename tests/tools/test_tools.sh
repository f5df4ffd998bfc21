#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests of the tools on the stand-in: every option, every exit code, everything that can be missing,
# and that a wrong byte is found. Usage: test_tools.sh BUILD_DIR SIM_DIR [refresh]: that writes texts.txt.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
PATH=$build:$PATH

# the same with few iterations; $few are the options of the tool for that
few="-w 3 -r 3"
quick() {
	# shellcheck disable=SC2086 # several words
	run "$@" $few
}

# ---- what the tools say, as stored in tests/tools/texts.txt ------------------------------------------
# NAME|VARIABLES|COMMAND: its exit status and the lines that the first row of the same command has not, without what
# differs from run to run.
says() {
	while IFS='|' read -r name vars command; do
		# shellcheck disable=SC2086 # several words
		run LD_LIBRARY_PATH="$sim" GDRSIM_DIR="$sim" LD_PRELOAD="$sim/libnvidia_node.so" $vars $command
		sed -E -e "s,$tmp/lacks/[^/]*,SIM,g;s,$sim,SIM,g;s/0x[0-9a-f]{9,}/ADDRESS/g;s/[a-z]+\.c:[0-9]+/LINE/" \
			-e '/^CPU: |version"/d;/seconds|\([0-9.]+ s\)|^ +[0-9]|^Round/s/ *[0-9]+\.[0-9]+(e[-+][0-9]+)?/ N/g' \
			-e '/^Round/s/\) [0-9]+/) N/g' \
			"$out" "$err" >"$tmp/now"
		echo "[$name] $rc"
		known=$tmp/known.$(cksum <<<"$command" | tr -d ' ')
		[ -e "$known" ] || : >"$known"
		diff "$known" "$tmp/now" | sed -n 's/^> //p'
		[ -s "$known" ] || cp "$tmp/now" "$known"
	done >>"$tmp/texts"
}
# libcuda without the call, or with another string of the same length in the place of one
lacks() { # lacks STRING [OTHER]
	dir=$tmp/lacks/${1//[%:.]/} # of a path of libraries
	mkdir -p "$dir"
	sed -z "s/^$1\$/${2-X${1#?}}/" "$sim/libcuda.so.1" >"$dir/libcuda.so.1"
}
lacks %04x:%02x:%02x.0 '%04X\n%02x:%02x\x7f0'
lacks nothing
lacks gdrsim_calls
plain="gdrcopy_copybw -w 0 -r 0 -s 64" vmm="gdrcopy_copybw -w 0 -r 0 -s 64 -a cuMemCreate" kernels="gdrcopy_pplat -t 3 -u 60"
sanity="gdrcopy_sanity -t basic -t vmm_chunks -t host_cached -t mapping_type"
says <<-END
	copybw||$plain
	copybw -a cuMemCreate||$vmm
	pplat||$kernels
	sanity||$sanity
	sanity -v||gdrcopy_sanity -t mapping_type -t two_types -t fd_calls -v
	sanity --json||gdrcopy_sanity -t mapping_type -t two_types -t fd_calls --json
	sanity --json -a||gdrcopy_sanity -a cuMemHostAlloc -t basic --json
	sanity -l||gdrcopy_sanity -l
	copybw --help||gdrcopy_copybw --help
	an integrated GPU|GDRSIM_INTEGRATED=1|$sanity
	host memory||gdrcopy_sanity -a cuMemHostAlloc -t basic
	a GPU without a name|GDRSIM_FAIL=cuDeviceGetName:*=46,cuDeviceGetPCIBusId:*=46|gdrcopy_sanity -a cuMemHostAlloc -t basic --json
	no version|GDRSIM_FAIL=cuDriverGetVersion:*=46|gdrcopy_sanity -a cuMemHostAlloc -t basic
	a PCI address of other characters|GDRSIM_PCI_DOMAIN=43981 LD_LIBRARY_PATH=$tmp/lacks/04x02x02x0|gdrcopy_sanity -a cuMemHostAlloc -t basic
	copybw --sim, another libcuda comes first|LD_PRELOAD=$tmp/lacks/nothing/libcuda.so.1|$plain --sim $sim
	sanity --sim, another libcuda comes first|LD_PRELOAD=$tmp/lacks/nothing/libcuda.so.1|$sanity --sim $sim
	sanity --help||gdrcopy_sanity --help
	doctor --help||gdrcopy_doctor --help
	a choice that there is not||gdrcopy_copybw -a malloc
	a size that is none||gdrcopy_copybw --size=1KB
	a number that is none||gdrcopy_copybw -w 1K
	a number of too many bits||gdrcopy_copybw -w 9223372036854775808
	a size of too many bits||gdrcopy_copybw -s 17179869184G
	the largest size||gdrcopy_copybw -s 17179869183G
	the largest size, cuMemCreate||gdrcopy_copybw -s 17179869183G -a cuMemCreate
	more than a size_t, cuMemCreate||gdrcopy_copybw -s 18446744073707454464 -a cuMemCreate
	... and the size below||gdrcopy_copybw -s 18446744073707454463 -a cuMemCreate
	a byte more than a granule||gdrcopy_copybw -s 2097153 -a cuMemCreate -w 0 -r 0
	memory for a granule alone|GDRSIM_MEM_MIB=4|gdrcopy_copybw -s 2M -a cuMemCreate -w 0 -r 0
	an integrated GPU, cuMemAlloc is not permitted|GDRSIM_INTEGRATED=1 GDRSIM_FAIL=cuMemAlloc:*=800|$sanity
	... is not supported|GDRSIM_INTEGRATED=1 GDRSIM_FAIL=cuMemAlloc:*=801|$sanity
	... finds no memory|GDRSIM_INTEGRATED=1 GDRSIM_FAIL=cuMemAlloc:*=2|$sanity
	... finds a value invalid|GDRSIM_INTEGRATED=1 GDRSIM_FAIL=cuMemAlloc:*=1|$sanity
	a number above the range||gdrcopy_pplat -B 1025
	a number below a range||gdrcopy_pplat -B 0
	a number below the least||gdrcopy_pplat -t 0
	a word too many||gdrcopy_copybw stray
	an unknown name||gdrcopy_sanity -t nonsense
	64 names||gdrcopy_sanity -d 7$(printf ' -t basic%.0s' {1..64})
	65 names||gdrcopy_sanity -d 7$(printf ' -t basic%.0s' {1..65})
END
sed -n 's/^\tX([A-Za-z0-9]*, \(.*\)).*/\1/p' "$root/tools/common/cuda.h" |
	grep -vE 'Graph|Capture|Async$|Managed|GetInfo|Memset|Shareable|StreamQuery|PointerGet' >"$tmp/calls"
while read -r call; do
	lacks "$call"
	case $call in
	cuModule* | cuLaunch* | cuStream*) command=$kernels ;;
	cuMem[ACGMRSU]*) command=$vmm ;;
	*) command=$plain ;;
	esac
	echo "no $call|LD_LIBRARY_PATH=$tmp/lacks/$call|$command"
	echo "${call%_v2} fails|GDRSIM_FAIL=${call%_v2}:*=46|$sanity"
done <"$tmp/calls" | says
says <<<"sanity, no cuMemUnmap|LD_LIBRARY_PATH=$tmp/lacks/cuMemUnmap|$sanity"
stored "the texts are those of texts.txt" "$here/texts.txt" "$tmp/texts" "${3-}"
[ "${3-}" != refresh ] || finish

# ---- what a library says of a GPU is printed as plain text ------------------------------------------
evil=$'GPU\e]0;title\a\nfault \x9b31m~\x7f \xc3\xa9'
for t in copybw copylat "apiperf -s 64K" pplat "sanity -t basic" doctor; do
	# shellcheck disable=SC2086 # several words
	run LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" GDRSIM_DRIVER_VERSION=13030 GDRSIM_GPU_NAME="$evil" \
		"$build"/gdrcopy_$t
	expect "${t%% *}: a GPU's name with control characters" 0 'GPU\?\]0;title\?.fault \?31m~\? '
	check "${t%% *}: prints none of them" eval "! LC_ALL=C grep -q '[^ -~]' \"\$out\" \"\$err\""
done

# In JSON they are escaped, as are those of the environment and of options in messages.
evil=$'x\x9b31m\xc2\x9b32m\x1b[33m\xc3\xa9'
run GDRCOPY_BACKEND="$evil" "$build"/gdrcopy_doctor --sim "$sim" --json
json "doctor: --json with control characters of the environment" 'assert any("x\ufffd31m\x9b32m\x1b[33m\xe9" in f["found"] + (f["means"] or "") for f in d["findings"]), d'
check "doctor: --json prints none of them" eval "! LC_ALL=C grep -q $'\xc2[\x80-\x9f]\|\x1b\|[^\xc3]\x9b' \"\$out\""
run GDRCOPY_BACKEND='a\b"' "$build"/gdrcopy_doctor --sim "$sim" --json
json "doctor: --json with a backslash" 'assert any("a\\b\"" in f["found"] + (f["means"] or "") for f in d["findings"]), d'
run "$build"/gdrcopy_copybw -a "$evil"
expect "copybw: a message with control characters of an option" 1 '' $'-a x\\?31m\\?32m\\?\\[33m\xc3\xa9: must be one of'
# ... and what is no UTF-8 is not printed, up to each bound of the form
bytes=$'\x1f \x7f \xc1\xbf \xc2\x9f \xc2\xa0 \xdf\xbf \xe0\x9f\xbf \xe0\xa0\x80 \xed\x9f\xbf \xed\xa0\x80 \xef\xbf\xbf '
bytes+=$'\xf0\x8f\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80 \x80 \xc3A \xe1\x80A \xe1\xc0\x80 \x80\x80\x80\x80 \xc3'
plain=$'? ? ?? ? \xc2\xa0 \xdf\xbf ??? \xe0\xa0\x80 \xed\x9f\xbf ??? \xef\xbf\xbf '
plain+=$'???? \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf ???? ???? ? ?A ??A ??? ???? ?'
run "$build"/gdrcopy_copybw -a "$bytes"
check "copybw: a message with bytes at the bounds of UTF-8" grep -qF -e "-a $plain: must be" "$err"
run "$build"/gdrcopy_copybw -a $'x\ty\nz'
check "copybw: a message keeps blanks and lines" eval 'grep -q $'"'x\ty\$'"' "$err" && grep -q "^z: must be" "$err"'
run "$build"/gdrcopy_copybw -a "$evil"
check "copybw: the message prints none of them" eval "! LC_ALL=C grep -q $'\xc2\x9b\|\x1b\|m\x9b' \"\$err\""

# ---- on the stand-in, what ordinary device memory is served by -------------------------------------
# dma-buf mmap is what a driver of CUDA 13.3 offers; older ones serve cuMemCreate memory only.
export GDRSIM_DRIVER_VERSION=13030

for t in copybw copylat pplat apiperf; do
	few="-n 3"
	case $t in
	copy*) few="-w 3 -r 3" ;;
	pplat) few="-t 3 -u 60" ;; # a busy machine is no fault
	esac
	run gdrcopy_$t --help
	expect "$t: --help" 0 '^Usage: '
	for o in -s ${few%% *} -d -a -M --json --sim --help --version; do
		check "$t: --help names $o" grep -q -- "  *$o" "$out"
	done
	documented gdrcopy_$t "$few"
	run gdrcopy_$t -h
	expect "$t: -h" 0 '^Exit status'
	run gdrcopy_$t --version
	expect "$t: --version" 0 "^gdrcopy_$t [0-9.]+ \(libgdrapi 2\.6\)\$"

	refused gdrcopy_$t 1 "Try 'gdrcopy_$t --help'" <<-END
		-Z
		stray
		-s x
		${few%% *} -1
		${few%% *} 1.5
		${few%% *} x
		${few%% *} 99999999999999999999
		-d -1
		-a malloc
		-M uncached
	END

	# -- --sim
	quick gdrcopy_$t --sim "$sim" -s 4K
	expect "$t: --sim" 0 'all data verified'
	check "$t: --sim: the first line says stand-in" \
		sh -c "head -n 1 '$out' | grep -q 'running on the stand-in $sim/libcuda.so.1'"
	cd "$sim/.." && quick gdrcopy_$t --sim "$(basename "$sim")" -s 64
	cd "$here" || exit 1
	expect "$t: --sim with a relative folder" 0 'all data verified'
	quick LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" gdrcopy_$t -s 64
	expect "$t: the stand-in by library path says so" 0 'running on the stand-in'

	quick gdrcopy_$t --sim "$sim" -s 0x1000 -d 0x0
	expect "$t: hexadecimal numbers" 0 'all data verified'

	# An empty variable names no directory: not this one, whose library is none.
	mkdir -p "$tmp/here" && : >"$tmp/here/libgdrapi.so.2" && cd "$tmp/here" && quick LD_LIBRARY_PATH='' gdrcopy_$t --sim "$sim" -s 64
	cd "$here" || exit 1
	expect "$t: --sim with an empty LD_LIBRARY_PATH" 0 'all data verified'

	# -- facts
	quick gdrcopy_$t --sim "$sim" -s 4K
	for f in '^GPU: +0: .*CUDA driver 13\.3' '^CPU: +[^ ]' '^buffer: +[0-9]+ bytes of cuMemAlloc' \
		'^mapping: .*backend (rm|dmabuf)'; do
		expect "$t: prints /$f/" 0 "$f"
	done

	# -- devices
	quick GDRSIM_DEVICES=2 gdrcopy_$t --sim "$sim" -s 4K -d 1
	expect "$t: -d 1" 0 '^GPU: +1: '

	# -- under the plain name, a link as GDRCopy's installation makes it
	mkdir -p "$tmp/plain"
	ln -sf "$build/gdrcopy_$t" "$tmp/plain/$t"
	quick "$tmp/plain/$t" --sim "$sim" -s 4K
	expect "$t: as a link of its plain name" 0 'all data verified'

	# -- figures and their words
	if [ "$t" != pplat ]; then
		quick gdrcopy_$t --sim "$sim" -s 1
		expect "$t: 1 byte" 0 '^buffer: +1 byte of '
		check "$t: 1 byte: nowhere 1 bytes" sh -c "! grep -Eq '(^| )1 [a-z]+s( |$)' '$out'"
	fi

	quick gdrcopy_$t --sim "$sim" -s 4K -a cuMemHostAlloc
	expect "$t: says host memory" 0 '^buffer: .*cuMemHostAlloc memory: host memory$'
	check "$t: host memory: no word of GPU memory" sh -c "! grep -q 'GPU memory' '$out'"
	expect "$t: host memory: not through the BAR" 0 'backend host \(not through the BAR\)'

	# -- JSON
	for args in "" "-a cuMemHostAlloc"; do
		# shellcheck disable=SC2086 # several words
		quick gdrcopy_$t --sim "$sim" -s 4K --json $args
		expect "$t: --json $args: exit status" 0
		json "$t: --json $args: verified" 'assert d["simulated"] is True and d["verified"] is True, d'
	done
	tool=gdrcopy_$t
	quick GDRSIM_DEVICES=0 gdrcopy_$t --sim "$sim" --json
	expect "$t: --json without a GPU: exit 2" 2 '"exit_status": 2' 'cannot run here: cuInit'
	json_error "$t: --json without a GPU: a document" 2 'CUDA_ERROR_NO_DEVICE'

	# -- where programs fall back, it is no success that other memory can be mapped
	none="GDRSIM_DRIVER_VERSION=13000 GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0"
	# shellcheck disable=SC2086 # several words
	rows gdrcopy_$t --sim "$sim" -s 4K $few <<-END
		gdr_open() fails: exit 2|$none||2||cannot run here: gdr_open\(\) fails, .*the gdrdrv driver is not loaded; .*gdrcopy_doctor reports what to do \(-a 
		gdr_open() fails, -a|$none|-a cuMemCreate|0|^buffer: .*cuMemCreate memory: GPU memory$
		gdr_open() fails, an integrated GPU|$none GDRSIM_INTEGRATED=1||0|^buffer: .*cuMemHostAlloc memory: memory that CPU and GPU share$|cuMemHostAlloc is used instead of cuMemAlloc
	END

	# -- half a report is no success
	for args in "" "--json" "--help" "--version"; do
		# shellcheck disable=SC2086 # several words
		run_full gdrcopy_$t --sim "$sim" -s 64 $few $args
		expect "$t: $args: a full disk" 1 '' "gdrcopy_$t: .*(No space|JSON|written)"
		check "$t: $args: a full disk: said once" [ "$(grep -c "^gdrcopy_$t: " "$err")" -eq 1 ]
	done
	run_full GDRSIM_DEVICES=0 gdrcopy_$t --sim "$sim"
	expect "$t: no GPU and a full disk: still exit 2" 2 '' 'cannot run here'

	# -- what the four have in common, of tools/common and perf/bench
	[ $t = copybw ] || continue
	refused gdrcopy_$t 1 "Try 'gdrcopy_$t --help'" <<-END
		--no-such-option
		-s
		-s -1
		-s 1Q
		-s 1KB
		-s 0x
		-s 0xg
		-s x10
		-s 010x
		-s 99999999999999999999
		-s 18446744073709551615G
		-d x
		-a cuMemAlloc,cuMemCreate
		--json=1
	END
	quick gdrcopy_$t --sim "$tmp"
	expect "$t: --sim without a libcuda" 1 '' 'no libcuda.so.1 there'
	for odd in "a b" a:b 'a$b'; do
		mkdir -p "$tmp/$odd" && cp "$sim"/lib*.so* "$tmp/$odd"
		quick gdrcopy_$t --sim "$tmp/$odd"
		expect "$t: --sim with a path that the loader would take apart: $odd" 1 '' 'the loader takes no path'
	done
	quick gdrcopy_$t --sim "$tmp/none"
	expect "$t: --sim without the folder" 1 '' 'No such file'
	quick GDRCOPY_BACKEND=host gdrcopy_$t --sim "$sim" --json
	json_error "$t: --json, no GPU memory is reached: a document" 2 'no GPU memory'
	quick GDRSIM_FAIL='cuMemcpyHtoD:*=700' gdrcopy_$t --sim "$sim" --json
	json_error "$t: --json, a failing call: a document" 1 'CUDA_ERROR_ILLEGAL_ADDRESS'

	# -- kinds of memory, and where it lies: host memory only if it is asked for, or is all that the GPU has
	# shellcheck disable=SC2086 # several words
	rows gdrcopy_$t --sim "$sim" $few <<-'END'
		-a cuMemAlloc||-s 100000 -a cuMemAlloc|0|^buffer: .*cuMemAlloc memory
		-a cuMemHostAlloc||-s 100000 -a cuMemHostAlloc|0|^mapping:  Caching, backend host
		-a cuMemHostAlloc -M wc||-s 100000 -a cuMemHostAlloc -M wc|0|^mapping:  Write Combining, backend host
		-a cuMemHostAlloc -M cache||-s 100000 -a cuMemHostAlloc -M cache|0|^mapping:  Caching, backend host
		-M default||-s 100000 -a cuMemAlloc -M default|0|all data verified
		-M that the memory cannot have||-a cuMemHostAlloc -M device|2||cannot run here: .*cuMemHostAlloc memory: map:
		-a cuMemCreate||-s 100000 -a cuMemCreate|0|^buffer: .*cuMemCreate memory
		gdr_open() succeeds, and memory of cuMemAlloc cannot be pinned: exit 2|GDRSIM_DRIVER_VERSION=13000 GDRSIM_RM_PROTECTED=1|-s 4K|2||cannot run here: no GPU memory can be reached: cuMemAlloc memory: pin: 
		says GPU memory||-s 4K|0|^buffer: .*cuMemAlloc memory: GPU memory$
		no backend for GPU memory: exit 2|GDRSIM_DMABUF_MMAP=0 GDRSIM_RM=absent|-s 4K|2||cannot run here: gdr_open\(\) fails
		an integrated GPU: its host memory|GDRSIM_INTEGRATED=1 GDRSIM_RM=absent|-s 4K|0|^buffer: .*cuMemHostAlloc memory: memory that CPU and GPU share$|cuMemHostAlloc is used instead of cuMemAlloc
		no GPU memory is reached: exit 2|GDRCOPY_BACKEND=host|-s 4K|2||cannot run here: no GPU memory can be reached: cuMemAlloc memory: pin: .*; .+
	END
	check "$t: no GPU memory is reached: nothing measured" sh -c "! grep -Eq '^(GPU|buffer):|verified' '$out'"

	# -- every way a GPU can be missing: exit 2, one line that says what is missing and what to do
	missing() {
		if [ "$(wc -l <"$err")" -ne 1 ]; then
			fail "$1" "not one line on stderr"
		else
			expect "$1" 2 '' "^gdrcopy_$t: cannot run here: .*$2.*; .+"
		fi
	}
	mkdir -p "$tmp/bad"
	: >"$tmp/bad/libcuda.so.1"
	quick LD_LIBRARY_PATH="$tmp/bad" gdrcopy_$t
	missing "$t: a libcuda.so.1 that is no library" 'libcuda.so.1 cannot be loaded'
	if LD_LIBRARY_PATH='' ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
		skip "$t: no libcuda.so.1" "this machine has one"
	else
		quick LD_LIBRARY_PATH='' gdrcopy_$t
		missing "$t: no libcuda.so.1" 'libcuda.so.1 not found'
	fi
	while IFS='|' read -r name vars args text; do
		# shellcheck disable=SC2086 # several words
		quick $vars gdrcopy_$t --sim "$sim" $args
		missing "$t: $name" "$text"
	done <<-'END'
		no device|GDRSIM_DEVICES=0||cuInit: CUDA_ERROR_NO_DEVICE
		cuInit fails|GDRSIM_FAIL=cuInit:*=999||cuInit: CUDA_ERROR_UNKNOWN
		cuInit fails by a version mismatch|GDRSIM_FAIL=cuInit:*=803||cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
		cuDeviceGetCount fails|GDRSIM_FAIL=cuDeviceGetCount:*=999||cuDeviceGetCount: CUDA_ERROR_UNKNOWN
		cuDeviceGet fails|GDRSIM_FAIL=cuDeviceGet:*=101||cuDeviceGet: CUDA_ERROR_INVALID_DEVICE
		-d beyond the last device||-d 1|there is no device 1
		no context|GDRSIM_FAIL=cuDevicePrimaryCtxRetain:*=2||cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY
		barcopy_open fails|GDRCOPY_BACKEND=rm,nonsense||no such backend: "nonsense" \(gdrdrv, dmabuf, rm, host\)
		no device memory|GDRSIM_FAIL=cuMemAlloc:*=2|-a cuMemAlloc|cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY
		no device memory, any kind|GDRSIM_FAIL=cuMemAlloc:*=2||cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY
		no cuMemCreate|GDRSIM_FAIL=cuMemCreate:*=801|-a cuMemCreate|cuMemCreate: CUDA_ERROR_NOT_SUPPORTED
		cuMemGetAllocationGranularity fails|GDRSIM_FAIL=cuMemGetAllocationGranularity:*=801|-a cuMemCreate|cuMemGetAllocationGranularity: CUDA_ERROR_NOT_SUPPORTED
		cuMemAddressReserve fails|GDRSIM_FAIL=cuMemAddressReserve:*=801|-a cuMemCreate|cuMemAddressReserve: CUDA_ERROR_NOT_SUPPORTED
		cuMemMap fails|GDRSIM_FAIL=cuMemMap:*=801|-a cuMemCreate|cuMemMap: CUDA_ERROR_NOT_SUPPORTED
		cuMemSetAccess fails|GDRSIM_FAIL=cuMemSetAccess:*=801|-a cuMemCreate|cuMemSetAccess: CUDA_ERROR_NOT_SUPPORTED
		no address for the GPU|GDRSIM_FAIL=cuMemHostGetDevicePointer:*=801|-a cuMemHostAlloc|cuMemHostGetDevicePointer: CUDA_ERROR_NOT_SUPPORTED
		no cuMemHostAlloc|GDRSIM_FAIL=cuMemHostAlloc:*=801|-a cuMemHostAlloc|cuMemHostAlloc: CUDA_ERROR_NOT_SUPPORTED
		memory that cannot be pinned|GDRCOPY_BACKEND=host|-a cuMemAlloc|cuMemAlloc memory: pin:
		no kind can be served|GDRSIM_INTEGRATED=1 GDRSIM_RM=absent GDRSIM_FAIL=cuMemHostAlloc:*=801||cuMemHostAlloc: CUDA_ERROR_NOT_SUPPORTED
	END
done

# ---- copybw and copylat ---------------------------------------------------------------------------
few="-w 3 -r 3"
for t in copybw copylat; do
	# the last but one: the whole command line that GDRCopy's own takes
	rows gdrcopy_$t --sim "$sim" <<-'END'
		bad: -s 0||-s 0|1||-s 0: must be at least 1
		-w 0||-s 4K -w 0 -r 3|0|all data verified
		-r 0||-s 4K -w 3 -r 0|0|all data verified
		GDRCopy's options||-s 0x2000 -d 0 -w 20 -r 10 -a cuMemAlloc -M default|0|all data verified
		-w 0 -r 0||-s 4K -w 0 -r 0|0|^nothing was copied
	END
	check "$t: -w 0 -r 0: not called verified" sh -c "! grep -q 'all data verified' '$out'"
	for args in "-w 0 -r 3" "-w 3 -r 0" "-w 0 -r 0"; do
		verified=true
		[ "$args" = "-w 0 -r 0" ] && verified=null
		# shellcheck disable=SC2086 # several words
		run gdrcopy_$t --sim "$sim" -s 4K --json $args
		expect "$t: --json $args" 0 "\"verified\": $verified"
		json "$t: --json $args: valid" ''
	done
done

# ---- copybw alone ---------------------------------------------------------------------------------
rows gdrcopy_copybw --sim "$sim" -w 3 -r 3 <<-'END'
	-s -c -o||-s 64K -c 1000 -o 37|0|^ +1000 +[0-9.]+ +3 +[0-9.]+ +3$
	-o is printed||-s 64K -c 1000 -o 37|0|^offset: +37$
	without -c the rest of the buffer||-s 64K -o 1|0|^ +65535 
	without -s|||0|^ +131072 
	-l of one byte||-l -s 1|0|^ +1 
	bad: -c above the buffer||-s 4K -c 4097|1||gdrcopy_copybw: -c [0-9]+: 
	bad: -o behind the buffer||-s 4K -o 4K|1||gdrcopy_copybw: -o [0-9]+: 
	bad: -c from -o on||-s 4K -c 4K -o 1|1||gdrcopy_copybw: -c [0-9]+: 
	bad: -c 0||-c 0|1||gdrcopy_copybw: -c [0-9]+: 
	-l ends with the size itself||-l -s 5000|0|^ +5000 
END
check "copybw: -l: 1 to 4096 and 5000" [ "$(grep -Ec '^ +[0-9]+ +[0-9.]+ ' "$out")" -eq 14 ]
# GDRCopy's lines, which scripts take apart
run gdrcopy_copybw --sim "$sim" -s 0x20000 -o 4 -c 64K -w 40 -r 20
expect "copybw: GDRCopy's line of a write" 0 '^write BW: [0-9.e+]+MB/s$'
expect "copybw: GDRCopy's line of a read" 0 '^read BW: [0-9.e+]+MB/s$'
expect "copybw: GDRCopy's line before a write" 0 '^writing test, size=65536 offset=4 num_iters=40$'
expect "copybw: GDRCopy's line before a read" 0 '^reading test, size=65536 offset=4 num_iters=20$'
expect "copybw: the table names its unit" 0 '^ +bytes +write MiB/s +copies +read MiB/s +copies$'
check "copybw: the table and the line agree" awk '
	/^ +65536 / { write = $2; read = $4 }
	/ BW: / { split($3, v, "MB"); w = $1 == "write" ? write : read
		  if (v[1] - w > 0.01 * w || w - v[1] > 0.01 * w) exit 1; n++ }
	END { exit n != 2 }' "$out"
run gdrcopy_copybw --sim "$sim" -s 0x40 -l -w 3 -r 0
check "copybw: -l: each size once" sh -c "! grep -q ' BW: ' '$out' && [ \$(grep -cE '^ +[0-9]+ ' '$out') = 7 ]"
check "copybw: -r 0: no line of a read" sh -c "! grep -q '^read' '$out'"
run gdrcopy_copybw --sim "$sim" -s 1M -w 10 -r 10 --json
json "copybw: --json: bytes, seconds and MiB/s agree" '
assert d["unit"] == "2^20 bytes/s"
for w in ("write", "read"):
    r = d["results"][0][w]
    assert abs(r["mib_per_s"] - 10 / r["seconds"]) < 1e-6 * r["mib_per_s"], r'

# ---- copylat alone --------------------------------------------------------------------------------
quick gdrcopy_copylat --sim "$sim" -s 5000
check "copylat: 14 sizes both ways" [ "$(grep -Ec '^ +[0-9]+( +[0-9.]+){7}$' "$out")" -eq 28 ]
check "copylat: the mean is among the others" awk '
	/^ +[0-9]+( +[0-9.]+){7}$/ && ($8 < $2 || $8 > $7) { exit 1 }' "$out"
quick gdrcopy_copylat --sim "$sim" -s 64 -c
expect "copylat: -c" 0 'cuMemcpy, pageable +cuMemcpy, page-locked'
check "copylat: -c: nine figures a row" [ "$(grep -Ec '^ +[0-9]+( +[0-9.]+){9}$' "$out")" -eq 14 ]
# The two variables of docs/clients.md, from P50 of 8 bytes and P0 of 64 KiB.
quick gdrcopy_copylat --sim "$sim" -s 128K
expect "copylat: the stand-in's figures are not for UCX" 0 "the stand-in's, not for use:$"
check "copylat: UCX's variables are the table's figures" awk '
	$1 == "write" { way = "put" }
	$1 == "read" { way = "get" }
	$1 == 8 { us[8, way] = $3 }
	$1 == 65536 { us[65536, way] = $2 }
	function near(a, b) { return a - b <= 0.004 * b + 0.01 && b - a <= 0.004 * b + 0.01 }
	function bw(way) { return 65528 / 1.048576 / (us[65536, way] - us[8, way]) }
	/^# export UCX_GDR_COPY_BW=0MBs,get_dedicated:[0-9]+MBs,put_shared:[0-9]+MBs$/ {
		split($3, v, ":"); good += near(v[2] + 0, bw("get")) && near(v[3] + 0, bw("put")) }
	/^# export UCX_GDR_COPY_LAT=get:[0-9.]+us,put:[0-9.]+us$/ {
		split($3, v, ":"); good += near(v[2] + 0, us[8, "get"]) && near(v[3] + 0, us[8, "put"]) }
	END { exit good != 2 }' "$out"
for args in "-s 32K" "-s 64K -r 0" "-s 64K -w 0" "-s 64K -E"; do
	# shellcheck disable=SC2086 # several words
	run gdrcopy_copylat --sim "$sim" -w 3 -r 3 $args
	check "copylat: $args: nothing for UCX" sh -c "! grep -q UCX_ '$out'"
done
quick gdrcopy_copylat --sim "$sim" -s 16K -E
check "copylat: -E: a size for each kind of copy" [ "$(grep -Ec '^engine_(read|write)_min, page(able|-locked) +([0-9]+|none)$' "$out")" -eq 4 ]
run gdrcopy_copylat --sim "$sim" -s 16K -w 0 -r 3 -E --json
expect "copylat: -E --json" 0 '"engine_read_min, pageable": [0-9]+'
# -C as GDRCopy has it: CUDA writes the range before each timed copy; for cached mappings alone
quick gdrcopy_copylat --sim "$sim" -s 64 -C
expect "copylat: -C without a cached mapping" 2 '' 'cannot run here: -C needs a cached mapping, this one is Write Combining; '
quick GDRSIM_COHERENT=1 gdrcopy_copylat --sim "$sim" -s 64 -C
expect "copylat: -C" 0 '^cache: +cold: CUDA overwrites'
expect "copylat: -C: every byte is compared" 0 'all data verified'
for dir in w r; do
	[ $dir = w ] && none=-r || none=-w
	run GDRSIM_COHERENT=1 GDRSIM_FAIL='cuMemsetD8:4=700' gdrcopy_copylat --sim "$sim" -s 2 -$dir 3 $none 0 -C
	expect "copylat: -C: CUDA writes before each timed copy, -$dir" 1 '^ +1 +[0-9]' 'cuMemsetD8: CUDA_ERROR_ILLEGAL_ADDRESS'
done
run GDRSIM_COHERENT=1 GDRSIM_FAIL='cuMemsetD8:*=700' gdrcopy_copylat --sim "$sim" -s 2
expect "copylat: without -C CUDA writes nothing" 0 'all data verified'
quick gdrcopy_copylat --sim "$sim" -s 64 -c -C -a cuMemHostAlloc --json
expect "copylat: -c -C --json" 0 '"cuMemcpy_pinned": \{'
json "copylat: --json: P0 <= P50 <= P99 <= max" '
rows = [r[w] for k in ("write", "read") for r in d[k] for w in r if w != "size"]
assert len(rows) == 42
order = "p0", "p50", "p99", "p999", "p9999", "max"
assert all(0 < r[a] <= r[b] for r in rows for a, b in zip(order, order[1:]))
assert all(r["iterations"] == 3 for r in rows)'

# ---- pplat alone ----------------------------------------------------------------------------------
few="-t 3 -u 60"
for ping in gpumem hostmem; do
	for pong in gpumem hostmem; do
		for data in gpumem hostmem; do
			for mode in "" "-m 1" "-m 0 -B 3 -T 64" "-m 1 -B 5 -T 7"; do
				where="-G $ping -C $pong -D $data $mode"
				# shellcheck disable=SC2086 # several words
				quick gdrcopy_pplat --sim "$sim" -s 5000 $where
				expect "pplat: $where" 0 'all data verified'
			done
		done
	done
done
# the row of GDRCopy's options: the whole command line that its own takes
rows gdrcopy_pplat --sim "$sim" -t 3 -u 60 <<-'END'
	-B and -T are printed||-s 64 -B 2 -T 0x20|0|^kernel: +2 blocks of 32 threads$
	flags alone take one thread||-B 8 -T 1024|0|^kernel: +1 block of 1 thread$
	flags alone|||0|^ +3( +[0-9.]+){7}$
	-u 0||-s 64 -u 0|0|all data verified
	GDRCopy's line||-s 64|0|^Round-trip latency per iteration is \(min\) [0-9.e+]+, \(median\) [0-9.e+]+ us$
	where flags and data lie||-s 64|0|^data: +64 bytes each way in GPU memory$
	-m 1: a mean||-t 50 -m 1 -s 256|0|^ +50 +[0-9.]+$
	GDRCopy's options||-d 0 -t 3 -u 60 -a cuMemAlloc -s 0x400 -B 8 -T 1024 -m 0 -G gpumem -C hostmem -D gpumem -M default|0|all data verified
	a kernel that the driver refuses|GDRSIM_FAIL=cuModuleLoadData:*=200||2||cannot run here: .*cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE.*; .+
	a launch that fails|GDRSIM_FAIL=cuLaunchKernel:*=700||1||cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS
	-q: kernels that the driver refuses|GDRSIM_FAIL=cuModuleLoadData:2=200|-q|1||cuModuleLoadData of the queue's kernels: 
	-q: no queue|GDRSIM_FAIL=cuMemHostRegister:*=2|-q|1||barcopy_queue_create: .*cuMemHostRegister
END
run gdrcopy_pplat --sim "$sim" -t 20 -m 1 -s 256 -B 2 --json
json "pplat: -m 1 --json" '
assert d["begins"] == "gpu" and d["blocks"] == 2 and d["threads"] == 64 and d["verified"] is True
assert d["round_trip"]["iterations"] == 20 and d["round_trip"]["mean"] > 0'
quick gdrcopy_pplat --sim "$sim" -s 64 -a cuMemHostAlloc
check "pplat: in host memory: no word of GPU memory" sh -c "! grep -q 'GPU memory' '$out'"
for bad in "-s 5" "-s 17M" "-t 0" "-B 0" "-B 1025" "-T 0" "-T 1025" "-m 2" "-G gpu" "-C host" "-D cpu"; do
	refused gdrcopy_pplat 1 "gdrcopy_pplat: $bad: " <<<"$bad"
done
quick gdrcopy_pplat --sim "$sim" -q
expect "pplat: -q" 0 'all data verified'
check "pplat: -q: six round trips and three figures" \
	[ "$(grep -Ec ' (8|48|240)( +[0-9.]+){2}$|^(million|a send).* [0-9.]+$' "$out")" -eq 9 ]
quick gdrcopy_pplat --sim "$sim" -q --json
json "pplat: -q --json" '
assert [r["size"] for r in d["round_trips"]] == [8, 48, 48, 240, 48, 48] and d["verified"] is True
assert all(0 < r["p50"] <= r["p99"] for r in d["round_trips"])
assert d["one_warp_million_s"] > 0 and d["four_warps_million_s"] > 0 and d["send_ns"] > 0'
ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null)
printf '#include <stdio.h>\n#include "pplat/ptx.h"\nint main(void){fputs(pplat_ptx,stdout);}\n' |
	${CC:-cc} -x c -I"$root/perf" -o "$tmp/ptx" - >"$out" 2>"$err" && "$tmp/ptx" >"$tmp/pplat.ptx"
cp "$root/perf/queue/kernels.ptx" "$tmp/queue.ptx"
for k in pplat queue; do
	if [ -n "$ptxas" ]; then
		# ptxas 13 takes no sm_70, its compilation for a newer GPU does not differ
		sed 's/sm_70/sm_75/' "$tmp/$k.ptx" >"$tmp/ptxas.ptx"
		check "pplat: ptxas takes the kernels: $k" \
			"$ptxas" -arch=sm_80 -o "$tmp/ptx.cubin" "$tmp/ptxas.ptx"
	else
		skip "pplat: ptxas takes the kernels: $k" "no ptxas: the CUDA toolkit is not in Debian's main archive"
	fi
done
if nvcc --version 2>/dev/null | grep -q 'release 13\.0'; then
	"$root/perf/queue/ptx.sh" >"$tmp/made"
	check "pplat: the queue's PTX is that of its source" cmp "$tmp/made" "$tmp/queue.ptx"
else
	skip "pplat: the queue's PTX is that of its source" "no nvcc 13.0: the CUDA toolkit is not in Debian's main archive"
fi

# ---- apiperf alone --------------------------------------------------------------------------------
few="-n 3"
quick gdrcopy_apiperf --sim "$sim" -s 2
expect "apiperf: -s below a word" 0 '^2 bytes$'
check "apiperf: -s below a word: none is stored" sh -c "! grep -q 'barcopy_[pg][ue]t32' '$out'"
quick gdrcopy_apiperf --sim "$sim" -s 200K
check "apiperf: 64, 128, 200 KiB" [ "$(sed -n 's/ bytes$//p' "$out" | grep -Ex '[0-9]+' | paste -sd' ')" = "65536 131072 204800" ]
quick gdrcopy_apiperf --sim "$sim"
check "apiperf: one size by default" [ "$(grep -Ec '^[0-9]+ bytes?$' "$out")" -eq 1 ]
for call in barcopy_open gdr_pin_buffer_v2 gdr_get_info_v2 barcopy_get_handle_attribute \
	gdr_get_callback_flag gdr_map_v2 barcopy_put32 barcopy_get32 gdr_unmap gdr_unpin_buffer gdr_close; do
	expect "apiperf: $call" 0 "^  $call( +[0-9.]+){5}\$"
done
check "apiperf: columns stand below their heads" awk '/^  call/ { n = length } n && /^  [bg]/ && length != n { exit 1 }' "$out"
run gdrcopy_apiperf --sim "$sim" -s 64K -n 20 -H
expect "apiperf: -H" 0 ' us +[0-9]+ #'
check "apiperf: -H: eleven bins a call" [ "$(grep -Ec ' to +[0-9.]+ us ' "$out")" -eq 121 ]
run gdrcopy_apiperf --sim "$sim" -s 256K -n 50 --json
json "apiperf: --json: every sample is in one bin" '
assert [r["size"] for r in d["results"]] == [65536, 131072, 262144]
for r in d["results"]:
    calls = [r[c] for c in r if c != "size"]
    assert len(calls) == 11
    for c in calls:
        assert sum(b["count"] for b in c["histogram"]) == c["iterations"] == 50
        assert 0 < c["p0"] <= c["p50"] <= c["p99"] <= c["max"]'
for option in "-n 7" "-n 7 -w 0" "-n 7 -w 3"; do
	# shellcheck disable=SC2086 # several words
	run gdrcopy_apiperf --sim "$sim" -s 64K --json $option
	expect "apiperf: $option" 0 '"iterations": 7'
done
# each round is a pin: those of the set-up and of the check after them stay the same
pins() {
	# shellcheck disable=SC2086 # several words
	GDRCOPY_STATS=1 gdrcopy_apiperf --sim "$sim" -s 64K $1 2>&1 >/dev/null |
		sed -nE 's/^ +pins ([0-9]+),.*/\1/p'
}
: >"$out"
check "apiperf: -w: rounds that are not timed" \
	[ "$(($(pins "-n 5 -w 20") - $(pins "-n 5 -w 0")))" -eq 20 ]
refused gdrcopy_apiperf 1 'gdrcopy_apiperf: -[snw] -?[0-9]+: ' <<-'END'
	-s 0
	-n 0
	-w -1
END

# ---- wrong bytes ----------------------------------------------------------------------------------
# ASan wants to come first; the interposer needs no ASan of its own.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
export ASAN_OPTIONS
cc=${CC:-cc}
# shellcheck disable=SC2086 # CC may be several words
if $cc -shared -fPIC -O1 -D_GNU_SOURCE= -I"$root/include" -o "$tmp/faulty.so" "$here/faulty.c" -ldl \
	>"$out" 2>"$err"; then
	export LD_PRELOAD="$tmp/faulty.so"
	for t in copybw copylat; do
		rows gdrcopy_$t --sim "$sim" -w 3 -r 3 -s 256 <<-'END'
			interposer alone|FAULT=none||0|all data verified
			wrong byte read|FAULT=read BYTE=21||1||read.*wrong byte at offset 21 .*expected 0x[0-9a-f]{2}, found 0x[0-9a-f]{2}; 1 of [0-9]+ bytes differ$
			an unmap that fails|FAULT=unmap ERROR=5||1||: gdr_unmap: Input/output error$
			an unpin that fails|FAULT=unpin ERROR=5||1||: gdr_unpin_buffer: Input/output error$
			a close that fails|FAULT=leak ERROR=5||1||: gdr_close: Input/output error$
			memory has run out|FAULT=memory BYTE=320||1||: out of memory: 320 bytes$
			a copy that fails|FAULT=error||1||gdrcopy_copy[a-z]+: .*: Invalid argument
			wrong byte written|FAULT=write BYTE=17||1||write.*wrong byte at offset 17 .*expected 0x[0-9a-f]{2}, found 0x[0-9a-f]{2}
		END
		run sh -c 'FAULT=read exec "$@" 2>&1' sh gdrcopy_$t --sim "$sim" -w 3 -r 3 -s 256
		check "$t: wrong byte read: what was printed before stands before the message" \
			env LD_PRELOAD= awk '/^GPU/ { table = 1 } /wrong byte/ { exit !table }' "$out"
		check "$t: wrong byte written: not called verified" env LD_PRELOAD= sh -c "! grep -q verified '$out'"
		run FAULT=write BYTE=0 gdrcopy_$t --sim "$sim" -w 3 -r 3 -s 256 --json
		expect "$t: wrong byte, --json" 1
		LD_PRELOAD='' json "$t: wrong byte, --json: not called verified" 'assert d["verified"] is False, d'
	done
	rows gdrcopy_copybw <<-END
		the version of a driver that is no stand-in|FAULT=driver LD_LIBRARY_PATH=$tmp/lacks/gdrsim_calls|-s 64 -a cuMemHostAlloc|0|^GPU: .*, CUDA driver 13.3 \(580.159.04\)$
	END
	rows gdrcopy_copybw --sim "$sim" -w 3 -r 3 <<-'END'
		a read that is lost: each byte was another one|FAULT=unread|-s 4K|1||read.*wrong byte at offset 0 .*; 4096 of 4096 bytes differ$
		a write that is lost, too|FAULT=unwritten|-s 4K|1||write.*wrong byte at offset 0 .*; 4096 of 4096 bytes differ$
		the offset printed is that in the buffer|FAULT=write BYTE=3|-o 100 -c 64|1||wrong byte at offset 103 
		a byte outside the range|FAULT=outside|-c 64|1||write.*wrong byte at offset 64 
	END
	rows gdrcopy_pplat --sim "$sim" -t 3 -u 60 <<-'END'
		wrong byte written|FAULT=write BYTE=40|-s 64|1||answer: wrong byte at offset 4[0-3] 
		wrong byte read|FAULT=read BYTE=40|-s 64|1||answer: wrong byte at offset 40 
		-m 1: wrong byte read|FAULT=read BYTE=40|-s 64 -m 1|1||data: wrong byte at offset 40 
		wrong byte, --json|FAULT=read|-s 64 --json|1|"verified": false
		-m 1: a ping that is lost|FAULT=drop|-u 1 -m 1 -B 2 -s 64|1||round 2: no answer from the GPU within 1 s
		a ping that is lost|FAULT=drop|-u 1|1||round 1: no answer from the GPU within 1 s
	END
	rows gdrcopy_apiperf --sim "$sim" -n 3 -s 64K <<-'END'
		wrong byte written|FAULT=write BYTE=0||1||wrong byte at offset 0 
		a store that is lost|FAULT=drop||1||wrong word at offset 0: expected 0x00000001
	END
	unset LD_PRELOAD
else
	skip "wrong bytes" "$cc cannot build the interposer"
fi

# ---- the GPU's node -------------------------------------------------------------------------------
# shellcheck disable=SC2086 # CC may be several words
if $cc -shared -fPIC -O1 -o "$tmp/numa_node.so" "$here/numa_node.c" -ldl >"$out" 2>"$err"; then
	few="-w 3 -r 3"
	quick NUMA_NODE=-1 LD_PRELOAD="$tmp/numa_node.so" gdrcopy_copybw --sim "$sim" -s 64
	expect "node: not known" 0 '^CPU: .*the system does not report'
	quick NUMA_NODE=0 LD_PRELOAD="$tmp/numa_node.so" gdrcopy_copybw --sim "$sim" -s 64
	if [ -e /sys/devices/system/node/node0 ]; then
		expect "node: bound" 0 "^CPU: .*on the GPU's node 0\$"
	else
		skip "node: bound" "this kernel has no NUMA support"
	fi
	quick NUMA_NODE=60 LD_PRELOAD="$tmp/numa_node.so" gdrcopy_copybw --sim "$sim" -s 64
	expect "node: none such" 0 "^CPU: .*no CPU that this process was given is on the GPU's node"
	# An affinity that was chosen stays: CPUs 0 and 1 as nodes 0 and 1.
	if taskset -c 0,1 true 2>/dev/null; then
		while IFS='|' read -r cpus node arg words ran; do
			# shellcheck disable=SC2086 # no argument, or one
			quick NUMA_SHOW=1 NUMA_NODE="$node" LD_PRELOAD="$tmp/numa_node.so" taskset -c "$cpus" \
				gdrcopy_copylat --sim "$sim" -s 8 $arg
			expect "node: given CPUs $cpus, GPU on $node $arg" 0 "^CPU: .*$words"
			check "node: given CPUs $cpus, GPU on $node $arg: ran on $ran" \
				[ "$(sed -n 's/^ran on CPU //p' "$out" | paste -sd,)" = "$ran" ]
		done <<-'END'
			0,1|0||on the GPU's node 0$|0
			0,1|1||on the GPU's node 1$|1
			1|1||on the GPU's node 1$|1
			1|0||not bound to a node \(no CPU that this process was given is on the GPU's node\)|1
			0,1|0|--cpu=1|on CPU 1 alone$|1
		END
		run taskset -c 0,1 gdrcopy_pplat --sim "$sim" --json --cpu 0 -t 3
		expect "pplat: --cpu" 0 '"alone_on": 0'
		run gdrcopy_copylat --sim "$sim" --cpu 1023
		expect "copylat: --cpu: none such" 1 '' '--cpu 1023: this process may not run there: Invalid argument'
	else
		skip "node: given CPUs" "this machine has no two CPUs, or no taskset"
	fi
else
	skip "node" "$cc cannot build the interposer"
fi

# ---- advice ---------------------------------------------------------------------------------------
# A user who has installed a tool has no stand-in to be sent to.
mkdir -p "$tmp/installed"
cp -L "$build/gdrcopy_copybw" "$tmp/installed"
for bad in GDRSIM_DEVICES=0 "LD_LIBRARY_PATH=$build:$tmp/bad"; do
	for from in "$build" "$tmp/installed"; do
		run LD_LIBRARY_PATH="$build:$sim" "$bad" "$from/gdrcopy_copybw"
		expect "advice, $bad: the reason" 2 '' 'cannot run here: '
		[ "$from" = "$build" ] && says=0 || says=1
		check "advice, $bad: a stand-in only where one is at hand" sh -c \
			"grep -q 'run on the stand-in with --sim $build/sim' '$err'; [ \$? = $says ]"
	done
done

# ---- demo.sh --------------------------------------------------------------------------------------
demo=$root/perf/demo.sh
first_line() {
	head -n 1 "$out" | grep -Eq -- "$1"
}

run LD_LIBRARY_PATH="$sim" GDRCOPY_BACKEND=host "$demo" "$build" "$sim"
check "demo: a GPU whose memory is not reached: the first line" first_line \
	'^demo: no GPU memory is reached \(no GPU memory can be reached: .*\): running on the stand-in$'
run LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" "$demo" "$build" "$sim"
expect "demo: a GPU whose memory is reached" 0 'all data verified'
check "demo: CUDA's copies and the engine's" grep -Eq '^ +65536( +[0-9.]+){2} +[0-9.]+x( +[0-9.]+){3} +[0-9.]+x$' "$out"
check "demo: a GPU whose memory is reached: the first line" first_line \
	'^demo: the CPU reaches GPU memory \(backend (rm|dmabuf)\): running on it$'
run "$demo"
expect "demo: without arguments" 1 '' '^usage: '
run LD_LIBRARY_PATH="$tmp/bad" "$demo" "$build" "$sim"
expect "demo: the real tools" 0 'all data verified'
run LD_LIBRARY_PATH="$tmp/bad" "$demo" "$build" "$tmp/a b"
expect "demo: in a path with a space" 0 'all data verified'
check "demo: the stand-in's figures are not compared" sh -c "! grep -qE '[0-9]x( |\$)' '$out'"
run LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" GDRSIM_DRIVER_VERSION=13000 GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0 "$demo" "$build" "$sim"
check "demo: a GPU that gdr_open() cannot serve: the first line" first_line \
	'^demo: gdr_open\(\) fails, .*: the CPU reaches GPU memory of cuMemCreate alone \(backend rm\): running on it$'
run LD_LIBRARY_PATH="$tmp/bad" "$demo" "$build" "$sim"
expect "demo: the stand-in's figures mean nothing" 0 'its figures mean nothing.* On an H200:$'
check "demo: it says so before the figures" awk '/figures mean nothing/ { said = 1 } /^microseconds/ { exit } END { exit !said }' "$out"
check "demo: the real tools: the first line" first_line \
	'^demo: no GPU memory is reached \(libcuda.so.1 cannot be loaded \(.*\)\): running on the stand-in$'
finish
