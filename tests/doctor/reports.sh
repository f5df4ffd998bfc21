#!/bin/sh
# SPDX-License-Identifier: MIT
# The reports of every described machine, from this build.
#
#   tests/doctor/reports.sh BUILD DIR          writes them to DIR
#   tests/doctor/reports.sh BUILD refresh      replaces the stored ones: read the difference, line by
#                                              line, before it is committed
#
# For each machine NAME: NAME.report, whose last line is the exit status, and NAME.report.json, which is not
# stored.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
doctor=$(cd "$1" && pwd)/tests/test_doctor_machines
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$2
[ "$out" = refresh ] && out=$work/out
mkdir -p "$out"

python3 "$here/expand.py" "$work" "$here"/machines/*.tree
for tree in "$here"/machines/*.tree; do
	name=$(basename "$tree" .tree)
	rc=0
	timeout 60 "$doctor" "$work/$name" "$here/machines/$name.probes" \
		>"$out/$name.report" || rc=$?
	echo "exit status $rc" >>"$out/$name.report"
	timeout 60 "$doctor" "$work/$name" "$here/machines/$name.probes" json \
		>"$out/$name.report.json" || true
done
if [ "$2" = refresh ]; then
	cp "$out"/*.report "$here/machines"
fi
