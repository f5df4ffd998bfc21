# SPDX-License-Identifier: MIT
# Packages: deb, rpm, dist, check-packages, and what is stored and must follow the code. What they
# hold is install.mk's.

# Where the project is published. make dist fills it into README, SECURITY, packages and recipes; while it is
# empty nothing has an address, and RELEASE=1 refuses.
PROJECT_URL ?=
RELEASE ?=
PACK_ENV = VERSION='$(VERSION)' O='$(O)' PROJECT_URL='$(PROJECT_URL)' RELEASE='$(RELEASE)'

.PHONY: dist deb deb-module rpm wheel check-packages
dist:
	@$(PACK_ENV) packaging/dist.sh

# Source and binary packages of this machine's architecture; DEB_ARCH=arm64 cross-builds.
deb:
	@$(PACK_ENV) DEB_ARCH='$(DEB_ARCH)' DEB_VERSION='$(DEB_VERSION)' packaging/deb.sh

# The module for given kernels, without DKMS: KDIR= SOURCE= NVIDIA_SRC= FLAVOR= SIGN=
deb-module:
	@$(PACK_ENV) KDIR='$(KDIR)' SOURCE='$(SOURCE)' NVIDIA_SRC='$(NVIDIA_SRC)' FLAVOR='$(FLAVOR)' SIGN='$(SIGN)' packaging/module.sh

rpm:
	@$(PACK_ENV) packaging/rpm.sh

# Python wheels with the library inside: WHEEL_ARCH="x86_64 aarch64"
wheel:
	@$(PACK_ENV) LIB_REAL='$(LIB_REAL)' WHEEL_ARCH='$(WHEEL_ARCH)' PYTHON='$(PYTHON)' packaging/wheel.sh

# A root of its own, every package in it, the clients, the module, removal, upgrade. Needs root.
# GDRCOPY_SOURCE= a git repository of GDRCopy: also the switch from NVIDIA's packages and back.
check-packages:
	@scripts/deps.sh full
	@GDRCOPY_SOURCE='$(GDRCOPY_SOURCE)' tests/packages/run.sh '$(O)'

# ---- what is stored and must follow the code --------------------------------------------------------

.PHONY: refresh-pages refresh-abi
# The tools' manual pages, from their --help.
refresh-pages: all
	@for t in $(notdir $(PERF_TOOLS)); do packaging/man/from-help.py $(O)/$$t >packaging/man/$$t.1 || exit 1; done

# The Debian symbols file, after an addition.
refresh-abi: lib
	@tests/packages/abi.sh refresh '$(O)' '$(VERSION)'
