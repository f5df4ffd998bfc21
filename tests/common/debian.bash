# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# How this machine's apt reaches Debian's archive, for those who make a root
# (tests/packages/dkms.sh, tests/check-fresh.sh) or fetch a kernel (gdrdrv/rig/kernels.sh). Sourced.

# mirror [security]: prints the URI from which apt here fetches Debian's packages, or Debian's
# security updates; nothing if apt has no such source
mirror() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
		awk -v want="${1:-main}" '$3 == "Debian" {
			is = $2 ~ /-security$/ || $1 ~ /security/ ? "security" : "main"
			if (is == want) { print $1; exit }
		}'
}

# configure ROOT SUITE MIRROR: apt in the root has this suite with its updates, from the mirror, and
# its security updates, if apt here has a source of them. It uses the proxies, timeouts and names of
# hosts of this machine.
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
