#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Of which GPU driver the nv-p2p.h in a directory is: prints "desktop" or "tegra", the suffix of the
# source file p2p_*.c that knows it. Tegra's get takes no address-space token. Looks into the header
# and what it includes by a relative name.
#
# usage: p2p-kind.sh DIRECTORY
set -u

for f in nv-p2p.h $(sed -n 's/^ *# *include *"\(.*\)".*/\1/p' "$1/nv-p2p.h"); do
	if grep -qs '\bva_space\b' "$1/$f"; then
		echo desktop
		exit
	fi
done
echo tegra
