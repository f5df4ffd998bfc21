# SPDX-License-Identifier: MIT
# Spack's recipe: copy this directory to REPOSITORY/packages/barcopy. With packages.yaml, recipes
# with depends_on("gdrcopy") use barcopy. make dist PROJECT_URL=... fills in url and sha256; without
# them `spack install barcopy` uses the tree that `spack develop` names.

from spack.package import *


class Barcopy(MakefilePackage):
    """CPU access to GPU memory through the GPU's BAR: a drop-in replacement for GDRCopy's libgdrapi."""

    license("MIT", checked_by="barcopy")

    version("2.6.0")

    depends_on("c", type="build")
    depends_on("gmake", type="build")

    requires("platform=linux")
    requires("target=x86_64:", "target=aarch64:", policy="one_of")

    def _options(self):
        return [
            "prefix={0}".format(self.prefix),
            "libdir={0}".format(self.prefix.lib),
            "CC={0}".format(spack_cc),
            # A new compiler's warning must not stop the build.
            "WARNINGS=-Wall -Wextra",
        ]

    def build(self, spec, prefix):
        make("all", *self._options())

    def install(self, spec, prefix):
        make("install", *self._options())
