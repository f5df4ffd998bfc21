# SPDX-License-Identifier: MIT
# Packages: deb, rpm, dist, check-packages, and committed files that are made from the code.

# The project's address, which make dist fills into the files that packaging/publish.sh names. While
# it is empty no file has an address, and RELEASE=1 fails.
PROJECT_URL ?=
RELEASE ?=
PACK_ENV = VERSION='$(VERSION)' O='$(O)' PROJECT_URL='$(PROJECT_URL)' RELEASE='$(RELEASE)'

.PHONY: dist deb rpm wheel check-packages
dist:
	@$(PACK_ENV) packaging/dist.sh

# Source and binary packages of this machine's architecture; DEB_ARCH=arm64 cross-builds.
deb:
	@$(PACK_ENV) DEB_ARCH='$(DEB_ARCH)' DEB_VERSION='$(DEB_VERSION)' packaging/deb.sh

rpm:
	@$(PACK_ENV) packaging/rpm.sh

# Python wheels with the library inside: WHEEL_ARCH="x86_64 aarch64"
wheel:
	$(needs_plain_path)
	$(need_python)
	@$(PACK_ENV) LIB_REAL='$(LIB_REAL)' WHEEL_ARCH='$(WHEEL_ARCH)' PYTHON='$(PYTHON)' packaging/wheel.sh

# Installs, upgrades, uses and removes every package in a root of its own. Needs root.
# GDRCOPY_PACKAGES= a directory with NVIDIA's packages: also the switch from them.
check-packages:
	@tests/deps.sh full
	@GDRCOPY_PACKAGES='$(GDRCOPY_PACKAGES)' tests/packages/run.sh '$(O)'

# ---- committed files that are made from the code ----

.PHONY: refresh-abi refresh-version
# The version and the date in the other files that state them.
refresh-version:
	@packaging/version.sh

# The Debian symbols file, after an addition.
refresh-abi: lib
	@tests/packages/abi.sh refresh '$(O)' '$(VERSION)'
