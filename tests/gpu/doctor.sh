#!/bin/sh
# SPDX-License-Identifier: MIT
# Captures what gdrcopy_doctor says and sees on a machine with a GPU, so that it can be looked at, and
# become test data, elsewhere.
#
#   tests/gpu/doctor.sh [BUILD [OUT]]
#
# OUT (doctor-capture) gets report.txt, report.json, probes.json, files.tar and, where it may,
# user.txt: the report of an unprivileged user. Exits 0 if a backend works, the report and the exit
# status agree, and the captured machine gives the same report when it is played back.
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
rm -rf "$out/files"
start=$(date +%s)
"$doctor" --record "$out/probes.json" --record-files "$out/files" >"$out/report.txt"
rc=$?
echo "exit status $rc, $(($(date +%s) - start)) s"
cat "$out/report.txt"
[ $rc = 0 ] || fail "no backend works"

"$doctor" --json >"$out/report.json" || fail "--json: exit status $?"
grep -q '"works": true' "$out/report.json" || fail "--json does not say that a backend works"

"$doctor" --root "$out/files" --replay "$out/probes.json" >"$out/again.txt"
[ $? = $rc ] || fail "played back, the exit status is another"
cmp "$out/report.txt" "$out/again.txt" || fail "played back, the report is another"

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	setpriv --reuid=65534 --regid=65534 --clear-groups "$doctor" >"$out/user.txt" 2>&1
	echo "as user 65534: exit status $?"
fi
tar -C "$out" -cf "$out/files.tar" files
chmod -R u+w "$out/files" && rm -rf "$out/files"
echo "exit $status"
exit $status
