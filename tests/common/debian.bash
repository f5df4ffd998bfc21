# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Debian's archive as this machine reaches it, for roots (tests/packages, tests/check-fresh.sh) and kernels
# (gdrdrv/rig/kernels.sh). Sourced.

# mirror [security]: prints the URI of the first source of Debian's suites, or of its security suites, in the machine's
# configuration of apt
mirror() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
		awk -v want="${1:-main}" '$3 == "Debian" {
			is = $2 ~ /-security$/ || $1 ~ /security/ ? "security" : "main"
			if (is == want) { print $1; exit }
		}'
}

# configure ROOT SUITE MIRROR: writes the sources of apt in the root, and copies the machine's settings of apt's
# connections and its names of hosts
configure() {
	local root=$1 suite=$2 main=$3 security
	security=$(mirror security)
	{
		echo "deb $main $suite main"
		echo "deb $main $suite-updates main"
		[ -z "$security" ] || echo "deb $security $suite-security main"
	} >"$root/etc/apt/sources.list"
	apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries)' >"$root/etc/apt/apt.conf.d/99host"
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}
