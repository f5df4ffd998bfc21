#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The layers of src/ (docs/design.md): a folder needs only those below it; and src/, tools/, perf/ and
# gdrdrv/ have no cycles of files. The tests read the files' includes and the objects' symbols; the
# last ones plant violations.
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
	(cd "$1" && find . -name '*.o' ! -name '*.pic.o' -printf '%P\n' | while read -r o; do
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

# The same by the text, for the driver: functions and shared variables, defined in the first column.
calls() { # calls FOLDER
	(cd "$1" && awk '
		/^[a-zA-Z].*gdrdrv_[a-z0-9_]+/ && !/^(static|extern)/ && (!/\(.*;$/ || /^(DEFINE|LIST)_/) {
			match($0, /gdrdrv_[a-z0-9_]+( =|;|\[|\()|\(gdrdrv_[a-z0-9_]+\)/)
			name = substr($0, RSTART, RLENGTH)
			gsub(/[^a-z0-9_]/, "", name)
			if (name)
				by[name] = FILENAME
		}
		{
			line = $0
			while (match(line, /gdrdrv_[a-z0-9_]+/)) {
				n++; from[n] = FILENAME; uses[n] = substr(line, RSTART, RLENGTH)
				line = substr(line, RSTART + RLENGTH)
			}
		}
		END { for (i = 1; i <= n; i++) if (by[uses[i]]) print from[i], by[uses[i]] }' ./*.c |
		sed 's|\./||g')
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

some() { # some NAME LINE TEXT
	grep -qx "$2" <<<"$3"
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
none "nor of gdrdrv/" "$({
	includes gdrdrv
	calls gdrdrv
} | circles)"
some "calls of the driver are seen" 'main.c [a-z]*\.c' "$(calls gdrdrv)"

# ---- planted in a copy ----

plant() { rm -rf "$tmp/p" && mkdir -p "$tmp/p/o" && cp -R src "$tmp/p/src"; }
plant
echo '#include "core/ctx.h"' >>"$tmp/p/src/base/env.h"
some "an include that goes up" 'base/env.h needs core/ctx.h' "$(includes "$tmp/p/src" | upwards)"
plant
echo '#include "struct_size.h"' >>"$tmp/p/src/base/slots.h"
echo '#include "base/slots.h"' >>"$tmp/p/src/base/struct_size.h"
some "two headers that include each other" base/slots.h "$(includes "$tmp/p/src" | circles)"
plant
cp -R "$out/src/." "$tmp/p/o"
printf 'void gdri_ctx_put(void); void planted(void); void planted(void) { gdri_ctx_put(); }\n' |
	gcc -x c -c -o "$tmp/p/up.o" - && ld -r -o "$tmp/p/both.o" "$tmp/p/o/base/struct_size.o" "$tmp/p/up.o" &&
	mv "$tmp/p/both.o" "$tmp/p/o/base/struct_size.o"
some "a symbol from above" 'base/struct_size.c needs core/ctx.c' "$(symbols "$tmp/p/o" "$PWD/src" | upwards)"
printf 'void gdri_struct_in(void); void planted(void); void planted(void) { gdri_struct_in(); }\n' |
	gcc -x c -c -o "$tmp/p/up.o" - && ld -r -o "$tmp/p/both.o" "$out/src/base/error.o" "$tmp/p/up.o" &&
	mv "$tmp/p/both.o" "$tmp/p/o/base/error.o"
some "two objects that need each other" base/error.c "$(symbols "$tmp/p/o" "$PWD/src" | circles)"
mkdir "$tmp/p/driver"
printf 'int gdrdrv_a(void)\n{\n\treturn gdrdrv_b();\n}\n' >"$tmp/p/driver/a.c"
printf 'int gdrdrv_b(void)\n{\n\treturn gdrdrv_a();\n}\n' >"$tmp/p/driver/b.c"
some "two files of a driver" a.c "$(calls "$tmp/p/driver" | circles)"
finish
