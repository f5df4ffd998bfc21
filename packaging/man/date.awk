# SPDX-License-Identifier: MIT
# Read before the other scripts: `date` is that of the CHANGELOG's last release, as mdoc has it.
FILENAME ~ /CHANGELOG/ {
	if (!date && /^## \[[0-9.]*\] - /) {
		split($NF, d, "-")
		split("January February March April May June July August September October November December", month, " ")
		date = month[d[2] + 0] " " (d[3] + 0) ", " d[1]
	}
	next
}
