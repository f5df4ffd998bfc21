#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/rm-abi/rm-abi.sh REPOSITORY [TAG...]: compares src/abi/rm.h with the headers of NVIDIA's driver
# releases. REPOSITORY is a clone of open-gpu-kernel-modules; the default is all its tags. Prints
# tests/rm-abi/rm-abi.txt, a line for each sequence of equal releases. Exits with 1 if a release has a layout
# or a number that rm.h does not declare. For a new driver: fetch its tag, run this; if nothing
# differs, commit the table and set the doctor's RM_COMPARED (tools/doctor/driver.c).
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '3,7s/^# //p' "$0" >&2; exit 2; }
repository=$1
shift
[ $# -gt 0 ] || mapfile -t tags < <(git -C "$repository" tag | sort -V)
[ $# -eq 0 ] || tags=("$@")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
headers=(src/common/sdk/nvidia/inc src/nvidia/arch/nvalloc/unix/include kernel-open/common/inc)

${CC:-cc} -I"$top/src" -o "$dir/ours" "$top/tests/rm-abi/rm_abi.c"
"$dir/ours" | sort >"$dir/declared"

# Prints how a release differs from the newest layouts; DIFFERENT marks what rm.h does not declare.
compare() { # compare TAG
	rm -rf "$dir/tag" "$dir/theirs"
	mkdir "$dir/tag"
	git -C "$repository" archive "$1" "${headers[@]}" | tar x -C "$dir/tag"
	${CC:-cc} -w -DTHEIRS "${headers[@]/#/-I$dir/tag/}" -o "$dir/theirs" "$top/tests/rm-abi/rm_abi.c"
	[ -x "$dir/theirs" ] || { echo "DIFFERENT: its headers do not compile with tests/rm-abi/rm_abi.c"; return; }
	"$dir/theirs" | sort >"$dir/lines"
	grep -E '^(NVOS21|EXPORT_TO_DMABUF_FD|GET_EXPORT_OBJECT_INFO|GPU_GET_INFO_V2)=' "$dir/lines" |
		sed -E 's/:.*,([0-9]+)\+[0-9]+$/:..\1/; s/:0.4,4$//' | tr '\n' ' '
	comm -23 "$dir/lines" "$dir/declared" | sed 's/^/DIFFERENT: /' | tr '\n' ' '
}

echo "# Structures and numbers of src/abi/rm.h, $(wc -l <"$dir/declared") lines, in releases of open-gpu-kernel-modules."
echo "# From, to, releases; then what is not the same in all: size and offset of the last field that is"
echo "# compared (status; the device instance). \"DIFFERENT\": not declared in rm.h. By tests/rm-abi/rm-abi.sh."
from='' n=0 same='' bad=0
for tag in "${tags[@]}" end; do
	now=$([ "$tag" = end ] || compare "$tag")
	case $now in *DIFFERENT*) bad=1 ;; esac
	if [ "$now" != "$same" ] || [ "$tag" = end ]; then
		[ -z "$from" ] || printf '%-11s %-11s %3d  %s\n' "$from" "$last" "$n" "${same% }"
		from=$tag n=0 same=$now
	fi
	last=$tag n=$((n + 1))
done
exit $bad
