#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The layers of src/ (docs/internals/design.md): a folder needs only those below it; and src/, tools/ and perf/
# have no cycles of files. The tests read the files' includes and the objects' symbols.
# Besides, lists that name lines of src/: mutants, planted faults, the log.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

layers="base copy cuda backend core cache queue calls" # from the lowest; abi stands beside base

# Lines "FILE INCLUDED" below a folder, relative to it.
includes() { # includes FOLDER
	(cd "$1" && find . -name '*.[ch]' -printf '%P\n' | while read -r f; do
		sed -n 's/^#[ \t]*include "\([^"]*\)".*/\1/p' "$f" | while read -r to; do
			if [ -f "$to" ]; then
				echo "$f $to"
			elif [ -f "$(dirname "$f")/$to" ]; then
				echo "$f $(realpath --relative-to=. "$(dirname "$f")/$to")"
			fi
		done
	done)
}

# Lines "USER DEFINER": sources whose objects use a symbol of another's object.
symbols() { # symbols OBJECTS SOURCES
	(cd "$1" && find . -name '*.o' -printf '%P\n' | while read -r o; do
		[ -f "$2/${o%.o}.c" ] && nm "$o" | sed "s|^|${o%.o}.c |"
	done) | awk '
		$(NF - 1) ~ /^[TDBRCVWGS]$/ { by[$NF] = $1; times[$NF]++ }
		$(NF - 1) == "U" { n++; from[n] = $1; uses[n] = $NF }
		END {
			# A symbol with several definitions, such as main(), says nothing.
			for (i = 1; i <= n; i++)
				if (times[uses[i]] == 1)
					print from[i], by[uses[i]]
		}'
}

# Of lines "A B" those where A is below B.
upwards() {
	awk -v layers="$layers" '
		BEGIN { n = split(layers, name, " "); for (i = 1; i <= n; i++) level[name[i]] = i }
		function layer_of(file) { sub(/\/.*/, "", file); return file }
		{ a = layer_of($1); b = layer_of($2) }
		a == b { next }
		a == "abi" || (b != "abi" && !(a in level && b in level && level[a] > level[b])) {
			print $1 " needs " $2
		}' | sort -u
}

# Files on a cycle.
circles() {
	awk '$1 != $2' | sort -u | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([^-].*\.[ch]\)$/\1/p'
}

none() { # none NAME TEXT
	[ -z "$2" ] || printf '# %s\n' "$2"
	[ -z "$2" ]
	ok "$1"
}

includes src >"$tmp/includes"
symbols "$out/src" "$PWD/src" >"$tmp/symbols"
unseen=$(cd src && comm -23 <(find . -name '*.c' -printf '%P\n' | sort) <(cut -d' ' -f1 "$tmp/includes" | sort -u))
[ -z "$unseen" ] && [ "$(sort -u "$tmp/symbols" | wc -l)" -gt 100 ]
ok "every source has includes that are seen, and there are symbols"
unknown=$(find src -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | grep -vxF "$(tr ' ' '\n' <<<"$layers abi")")
[ -z "$unknown" ]
ok "every folder of src/ is a layer"
none "no file includes one of a layer above" "$(upwards <"$tmp/includes")"
none "no object needs one of a layer above" "$(upwards <"$tmp/symbols")"
none "no two files of src/ need each other" "$(cat "$tmp/includes" "$tmp/symbols" | circles)"
for folder in tools perf; do
	none "nor of $folder/" "$({
		includes "$folder"
		symbols "$out/$folder" "$PWD/$folder"
	} | circles)"
done

# The mutation test and the planted faults run in make check-full; that their lists name lines of this tree is seen here.
none "the lists of mutants name lines of the tree" "$(python3 -B tests/mutants/mutants.py --stale 2>&1)"
none "... and the faults that are planted for the explorer" "$(python3 -B tests/explore/planted.py --stale 2>&1)"
if command -v patch >/dev/null; then
	none "... and those that are planted in the driver" "$(for p in gdrdrv/tests/planted/*.patch; do
		patch -p1 -s -t --dry-run <"$p" >/dev/null 2>&1 || echo "$p does not apply"
	done)"
else
	skip "... and those that are planted in the driver" "no patch"
fi

# The full tier skips a kernel that cannot be had: that matrix, kernels.sh and the sums name the same kernels is seen here.
kernels_differ() { # kernels_differ TREE
	local kernel suite image headers sums
	for kernel in $(awk -F ' *[|] *' '!/^#/ && NF > 2 { print $2 }' "$1/gdrdrv/tests/matrix" | tr ' ' '\n' | sort -u); do
		sed -n '/^kernel_fetch()/,/^}/p' "$1/gdrdrv/rig/kernels.sh" | grep -qE "^[[:space:]]*${kernel//./\\.}\)" ||
			echo "kernel_fetch() of kernels.sh has no $kernel, which matrix boots"
	done
	while read -r kernel suite image headers; do
		sums=$1/gdrdrv/rig/configs/$kernel.sha256
		[ "$(sed -E 's/^[0-9a-f]{64}  ([^_]*)_[^_]*_(amd64|all)\.deb$/\1/' "$sums" | sort | paste -sd' ')" = \
			"$(printf '%s\n' "$image" "$headers" "${headers%-amd64}-common" \
				"linux-kbuild-$(sed -E 's/^linux-headers-(.*)-amd64$/\1/' <<<"$headers")" | sort | paste -sd' ')" ] ||
			echo "$kernel.sha256 has not the sums of $image, $headers, -common and -kbuild from $suite"
	done < <(sed -n ':a; /\\$/{N; s/\\\n//; ba}; s/"$name"//; s/^[[:space:]]*\([^ )]*\)) fetch_pinned \(.*\) ;;$/\1 \2/p' \
		"$1/gdrdrv/rig/kernels.sh")
}
none "matrix, kernels.sh and the sums of packages name the same kernels" "$(kernels_differ .)"
pinned=$(basename gdrdrv/rig/configs/*.sha256 .sha256)
for change in "tests/matrix 0,/ $pinned /s// 1&/" "rig/kernels.sh s/$pinned) /1&/" "rig/kernels.sh s/image-$pinned/&1/" \
	"rig/configs/$pinned.sha256 \$d"; do
	rm -rf "$tmp/kernels" && mkdir -p "$tmp/kernels/gdrdrv/tests" && cp -r gdrdrv/rig "$tmp/kernels/gdrdrv" &&
		cp gdrdrv/tests/matrix "$tmp/kernels/gdrdrv/tests" && sed -i "${change#* }" "$tmp/kernels/gdrdrv/${change%% *}" &&
		! cmp -s "gdrdrv/${change%% *}" "$tmp/kernels/gdrdrv/${change%% *}" && [ -n "$(kernels_differ "$tmp/kernels" 2>&1)" ]
	ok "... a difference is found: $change"
done

# What src/ logs: the level and the text of each line. The head of gdri_log() in src/base/error.h has what a level means.
grep -rhA1 'gdri_log(' src --include='*.c' | tr -d '\n' | grep -oE 'gdri_log\([^"]*"[^"]*"' | grep -oE 'GDRI_LOG_.*' |
	sed -E 's/[ \t]+/ /g; s/GDRI_LOG_//g' | LC_ALL=C sort >"$tmp/logged"
diff - "$tmp/logged" <<'END'
DEBUG, "%s pins 0x%llx + 0x%zx"
DEBUG, "errno %d: %s"
ERROR, "%s was not destroyed: its memory stays allocated"
ERROR, "%s"
ERROR, "ending former copy options: %s"
ERROR, "memory of the trial stays: %s"
ERROR, "unpinning a shared region: %s"
INFO, "no limit for a cache but what the BAR holds: %s"
WARN : DEBUG, "%s: GPU %d, memory of %s: %s"
WARN, "%s"
END
ok "each line of the log is in the list, with its level"
finish
