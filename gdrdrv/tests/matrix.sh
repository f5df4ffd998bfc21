# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The full tier, sourced by run.sh: the rows of the file matrix. $BUILD/matrix has the result and
# the log of each row; a run skips rows that have passed on the current sources.

ROWS=$BUILD/matrix

# Checksums of the driver, the rig and the tests.
sources() {
	(cd "$SRC" && find gdrdrv -type f ! -name '*.o' ! -name '*.ko' ! -name '*.mod*' \
		! -name '.*' ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
}

release_of() {
	local K_DIR K_ARCH K_CPU config
	kernel_dir "$1"
	[ -e "$K_DIR/ready" ] && cat "$K_DIR/release" || echo none
}

# Prints the rows: KERNEL/NAME | kernel | how | generations | set-ups | arguments | shows
matrix_rows() {
	local name kernels how gens setups args shows kernel one id
	while IFS='|' read -r name kernels how gens setups args shows; do
		case $name in '#'* | '') continue ;; esac
		shows=${shows# }
		for kernel in $kernels; do
			for one in $how; do
				id=${kernel}/${name// /}
				[[ $one != *:* ]] || id+=-$(tr : - <<<"${one#*:}")
				echo "$id|$kernel|$one|$gens|$setups|$args|${shows% }"
			done
		done
	done <"$KERNEL_TESTS/matrix"
}

# Builds for a row.
row_build() {
	local kernel=$1 how=$2 gens=$3
	kernel_prepare "$kernel" || { unavailable "$kernel: its packages cannot be had"; return 1; }
	RIG_VARIANT='' RIG_PLANT='' RIG_FLAVOR=open
	case $how in
	prop) RIG_VARIANT=prop RIG_FLAVOR=proprietary ;;
	plant:*)
		RIG_VARIANT=planted RIG_PLANT=${how#*:}
		[ "$RIG_PLANT" != none ] || RIG_PLANT= ;;
	esac
	rig_build $gens || { fail "$kernel: build"; return 1; }
	[ "$how" != library ] || rig_library || { tail -20 "$BUILD/library.log"; fail "$kernel: library: build"; return 1; }
}

# Boots one row.
row_boot() {
	local kernel=$1 setups=$2 args=$3 arg all=() coverage=
	local RIG_MEM=${RIG_MEM:-512M} RIG_LIMIT=3600 RIG_BAR=${RIG_BAR:-64M}
	case $kernel in debug*) RIG_MEM=1024M RIG_LIMIT=7200 all+=(rig.debug=1) ;; esac
	[ "$RIG_VARIANT" != planted ] || { RIG_LIMIT=900; all+=(loglevel=4); }
	for arg in $args; do
		case $arg in
		boots=*) ;;
		bar=*) RIG_BAR=${arg#*=} RIG_MEM=1024M ;;
		coverage) coverage=yes ;;
		*.*=*) all+=("$arg") ;;
		*) all+=("rig.$arg") ;;
		esac
	done
	[ -z "$coverage" ] || gcov_list
	rig_boot "$kernel" ${setups:+rig.setups=$setups} rig.seed="$seed" "${all[@]}"
	[ -z "$coverage" ] || coverage_of "$kernel" 90
}

# Checks that a test of each name in only= has passed, for rows without a fault.
row_has_run() {
	local only name
	only=$(sed -n 's/.*only=\([^ ]*\).*/\1/p' <<<"$1")
	for name in ${only//,/ }; do
		grep -aqE "^ok [0-9]+ - [^/ ]*/[^ ]*${name}[^ ]* # [0-9]" "$W/console" ||
			{ say "no test named $name passed"; return 1; }
	done
}

# The intended check must catch the fault in every boot. A machine that does not boot fails the row.
row_planted() {
	local id=$1 kernel=$2 setups=$3 args=$4 shows=$5 boots n was_bad was_ok was_skipped evidence=
	boots=$(sed -n 's/.*boots=\([0-9]*\).*/\1/p' <<<"$args")
	for ((n = 1; n <= ${boots:-1}; n++)); do
		was_ok=$ok was_bad=$bad was_skipped=$skipped
		RIG_NO_HOSTCHECK=1 row_boot "$kernel" "$setups" "$args" >"$W/planted.log" 2>&1
		local caught=$((bad > was_bad))
		ok=$was_ok bad=$was_bad skipped=$was_skipped
		# A kernel that crashed has written to the console only.
		grep -haE 'KASAN|BUG:|WARNING:|RIP:|possible circular|unreferenced' "$W/console" |
			sed 's/^/# console: /' >>"$W/planted.log"
		if [ -z "$shows" ]; then
			[ "$caught" = 0 ] && row_has_run "$args" && continue
		else
			evidence=$(grep -m1 -aE "$shows" "$W/planted.log" | cut -c1-120)
			[ "$caught" = 1 ] && [ -n "$evidence" ] && continue
		fi
		cat "$W/planted.log"
		fail "$id: ${shows:+no \"$shows\"}${shows:-something is caught, or did not run} in boot $n"
		return
	done
	pass "$id: ${boots:-1} of ${boots:-1} boots: ${evidence:-nothing is caught}"
}

row_run() {
	local id=$1 kernel=$2 how=$3 gens=$4 setups=${5// /} args=$6 shows=$7 gen
	case $how in
	static | cross) "row_$how"; return ;;
	esac
	[[ $args != *coverage* ]] || RIG_GCOV=1
	row_build "$kernel" "$how" "$gens" || return
	case $how in
	plant:*) row_planted "$id" "$kernel" "$setups" "$args" "$shows"; return ;;
	gpl) row_gpl; return ;;
	library) RIG_NO_HOSTCHECK=1 ;;
	prop)
		for gen in $gens; do
			gpl_symbols "$W/mod/gdrdrv-$gen-prop.ko" >"$W/gpl"
			[ ! -s "$W/gpl" ] || fail "$id: $gen: GPL-only symbols: $(tr '\n' ' ' <"$W/gpl")"
		done ;;
	esac
	row_boot "$kernel" "$setups" "$args"
	[ -z "$shows" ] || grep -qaE "$shows" "$W/console" || fail "$id: no \"$shows\""
}

# Tests the check for GPL-only symbols: it must find those of the provider.
row_gpl() {
	if gpl_symbols "$W/mod/provider-580.ko" | grep -qx register_kprobe; then
		pass "the check for GPL-only symbols sees those of the provider"
	else
		fail "the check for GPL-only symbols is blind"
	fi
}

# Cross-builds like a user: `make driver` against the distribution's headers.
row_cross() {
	local out=$BUILD/cross
	kernel_prepare 6.1-arm64 || { unavailable "6.1-arm64: its packages cannot be had"; return; }
	rm -rf "$out"
	if make -C "$SRC" driver ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- KDIR="$K_HEADERS" \
		NVIDIA_SRC=gdrdrv/rig/include/580 FLAVOR=open O="$out" >"$out.log" 2>&1 &&
	   LC_ALL=C file "$out/gdrdrv/gdrdrv.ko" | grep -q 'ARM aarch64'; then
		pass "cross build of the driver"
	else
		tail -20 "$out.log"
		fail "cross build of the driver"
	fi
}

# W=1, sparse and checkpatch. Ignored: checks of patches; KNOB(), which names its argument twice;
# the line break that clang-format puts before a long message.
row_static() {
	local args checkpatch
	kernel_prepare 6.1 || { unavailable "6.1: its packages cannot be had"; return; }
	W=$BUILD/static
	rm -rf "$W" && mkdir -p "$W/mod"
	for args in GDRDRV_FLAVOR=open GDRDRV_FLAVOR=proprietary; do
		if build_driver "$W" 580 "${args##*=}" $args C=2 CF=-Wsparse-error >"$W/log" 2>&1; then
			pass "580, $args: W=1 and sparse"
		else
			cat "$W/log"
			fail "580, $args: W=1 and sparse"
		fi
	done
	checkpatch=$(kernel_scripts)/checkpatch.pl
	[ -e "$checkpatch" ] || { unavailable "checkpatch: the kernel's source cannot be had"; return; }
	if perl "$checkpatch" --strict --no-tree --no-summary --terse --max-line-length=100 \
		--ignore "FILE_PATH_CHANGES,MACRO_ARG_REUSE,OPEN_ENDED_LINE" \
		-f $(ls "$SRC"/gdrdrv/*.[ch] "$RIG"/provider/*.[ch]); then
		pass "checkpatch --strict"
	else
		fail "checkpatch --strict"
	fi
}

# Lists the guest's paths of the counters of each object that the row's set-ups load.
gcov_list() {
	local f
	for f in "$W"/gdrdrv-[0-9][0-9][0-9]/*.o; do
		f=${f%.o}
		[ ! -e "$SRC/gdrdrv/$(basename "$f").c" ] || echo "/sys/kernel/debug/gcov$f.gcda"
	done >"$W/gcov.list"
}

# coverage_of NAME PERCENT: checks the line coverage, by the counters that the guest prints
coverage_of() {
	local judge=pass
	python3 "$RIG/coverage.py" "$W/gcov.list" "$W/console" "$SRC/gdrdrv" "$2" >"$W/coverage" || judge=fail
	sed 's/^/# /' "$W/coverage"
	$judge "$1: line coverage: $(tail -1 "$W/coverage")"
	rm -f "$W/gcov.list"
}

# A row's result: stamp, passed, failed, skipped, seconds, date, the kernel's release
row_file() {
	echo "$ROWS/${1//\//-}"
}

row_stamp() {
	{ sources; release_of "$2"; echo "$*"; } | sha256sum | cut -c1-16
}

# Runs one row in a subshell, so that its settings end with it.
row_keep() {
	local file start=$SECONDS stamp
	file=$(row_file "$1") stamp=$(row_stamp "$@")
	rm -f "$file.result"
	(ok=0 bad=0 skipped=0
	 row_run "$@"
	 echo "$stamp $ok $bad $skipped $((SECONDS - start)) $(date +%FT%H:%M) $(release_of "$2")" >"$file.result") >"$file.log" 2>&1
	grep -aE '^not ok|# SKIP' "$file.log"
	[ -e "$file.result" ] || { tail -5 "$file.log"; fail "$1: did not come to its end"; return; }
	row_count "$1"
}

row_count() {
	local good wrong left seconds
	read -r _ good wrong left seconds _ <"$(row_file "$1").result"
	ok=$((ok + good)) bad=$((bad + wrong)) skipped=$((skipped + left))
	say "$1: $good passed, $wrong failed, $left skipped, $seconds s${2:-}"
}

matrix() {
	local row pattern wanted fields
	mkdir -p "$ROWS"
	while read -r -u 7 row; do
		IFS='|' read -ra fields <<<"$row|"
		wanted=$#
		for pattern; do
			[[ ${fields[0]} != *$pattern* ]] || wanted=0
		done
		[ "$wanted" = 0 ] || continue
		if [ -z "${RERUN:-}" ] && read -r stamp _ wrong _ 2>/dev/null <"$(row_file "${fields[0]}").result" &&
		   [ "$stamp" = "$(row_stamp "${fields[@]}")" ] && [ "$wrong" = 0 ]; then
			row_count "${fields[0]}" ' (passed before)'
		else
			row_keep "${fields[@]}"
		fi
	done 7< <(matrix_rows)
}

# Prints the page of results: rows that ran on the current sources, on earlier ones, or not at all.
results() {
	local row fields stamp good wrong left seconds when release state
	echo '| run | kernel | passed/failed/skipped | seconds | when | sources |'
	echo '|---|---|---|---|---|---|'
	while read -r row; do
		IFS='|' read -ra fields <<<"$row|"
		if read -r stamp good wrong left seconds when release 2>/dev/null <"$(row_file "${fields[0]}").result"; then
			state=earlier
			[ "$stamp" != "$(row_stamp "${fields[@]}")" ] || state=these
			echo "| ${fields[0]} | $release | $good/$wrong/$left | $seconds | $when | $state |"
		else
			echo "| ${fields[0]} | | not run | | | |"
		fi
	done < <(matrix_rows)
}
