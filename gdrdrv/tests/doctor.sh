#!/bin/sh
# SPDX-License-Identifier: MIT
# In the guest, with gdrdrv loaded: what gdrcopy_doctor says of the node, without CUDA, since it looks at the node only
# where no trial by gdrdrv worked. Does what it advises, also where a callback pin keeps the module. Prints what is wrong.
node=/dev/gdrdrv rc=0
major=$(awk '$2 == "gdrdrv" { print $1 }' /proc/devices) misc=$(awk '$2 == "gdrdrv" { print $1 }' /proc/misc)
cuda=$(readlink -f /usr/lib/libcuda.so.1)

# says TEXT...: the report's part on the module has each text
says() {
	gdrcopy_doctor | sed -n '/^Kernel module gdrdrv/,/^$/p' | tr -s ' \n' ' ' >/tmp/report
	for text; do
		grep -qF -- "$text" /tmp/report || { rc=1; echo "no \"$text\" in:"; fold -s -w 110 /tmp/report; }
	done
}

# heals: what the last report says to do leads to a node that opens
heals() {
	todo=$(sed -n 's/.* to do: as root: \(.* c [0-9]* [0-9]*\) .*/\1/p' /tmp/report)
	sh -c "${todo:-false}" || { rc=1; echo "advised: \"$todo\""; }
	says "ok $node (10:$misc, mode 0666, owner 0:0) opens"
}

[ ! -e "$cuda" ] || mv "$cuda" /tmp/hidden
says "ok barcopy's gdrdrv is loaded, version 2.6" "ok $node (10:$misc, mode 0666, owner 0:0) opens"
mv $node /tmp/node
says "/dev/gdrdrv is missing, though the module is loaded"
heals
rm $node
mknod -m 666 $node c "$major" 0
says "ok $node ($major:0, mode 0666, owner 0:0) opens"
for numbers in "10 $((misc + 1))" "$major 1" "$((major - 1)) 0"; do
	rm $node
	# shellcheck disable=SC2086 # two words
	mknod -m 666 $node c $numbers
	says "fault $node ($(echo "$numbers" | tr ' ' :), mode 0666, owner 0:0)" \
		"the node is stale: the driver's is 10:$misc (/proc/misc) and $major:0 (/proc/devices)"
	heals
done
rm $node && mv /tmp/node $node
[ ! -e /tmp/hidden ] || mv /tmp/hidden "$cuda"
exit $rc
