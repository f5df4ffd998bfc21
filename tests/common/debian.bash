# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Roots of a Debian, made from this machine's mirrors. Sourced.

# This machine's mirror: of Debian, or (security) of its security suites.
mirror() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
		awk -v want="${1:-main}" '$3 == "Debian" {
			if (($2 ~ /-security$/ ? "security" : "main") == want) { print $1; exit }
		}'
}

# configure ROOT SUITE MIRROR: the root's own sources, and how this machine reaches mirrors
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
