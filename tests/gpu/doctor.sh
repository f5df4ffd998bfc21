#!/bin/sh
# SPDX-License-Identifier: MIT
# What gdrcopy_doctor reports on a machine with a GPU.
#
#   tests/gpu/doctor.sh [BUILD [OUT]]
#
# OUT (doctor-capture) gets report.txt, report.json and, as root, user.txt: the report of an
# unprivileged user. Exits 0 if ordinary GPU memory can be mapped, and reports, exit status and
# gdrcopy_copylat agree.
set -u

build=${1:-build}
out=${2:-doctor-capture}
doctor=$build/gdrcopy_doctor
status=0

fail() {
	echo "FAILED: $*"
	status=1
}

mkdir -p "$out" || exit 1
start=$(date +%s)
"$doctor" >"$out/report.txt"
rc=$?
echo "exit status $rc, $(($(date +%s) - start)) s"
cat "$out/report.txt"
[ $rc = 0 ] || fail "ordinary GPU memory cannot be mapped on every GPU"

"$doctor" --json >"$out/report.json" || fail "--json: exit status $?"
grep -q '"ordinary_memory": "yes"' "$out/report.json" || fail "--json does not say \"yes\""
"$build/gdrcopy_copylat" -a cuMemAlloc -s 64K >"$out/copylat.txt" || fail "gdrcopy_copylat: exit status $?"

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	setpriv --reuid=65534 --regid=65534 --clear-groups "$doctor" >"$out/user.txt" 2>&1
	echo "as user 65534: exit status $?"
fi
echo "exit $status"
exit $status
