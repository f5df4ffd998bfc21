# SPDX-License-Identifier: MIT
# nix-build packaging/recipes/nix, or in an overlay: gdrcopy = callPackage ./. { }
{ stdenv ? (import <nixpkgs> { }).stdenv, lib ? (import <nixpkgs> { }).lib, src ? ../../.. }:

stdenv.mkDerivation {
  pname = "barcopy";
  version = "2.6.0";
  inherit src;
  makeFlags = [ "prefix=${placeholder "out"}" ];
  enableParallelBuilding = true;
  # libcuda.so.1 is looked up at run time, as for every CUDA program: /run/opengl-driver/lib.
  meta = {
    description = "Low-latency CPU access to GPU memory, a drop-in replacement for GDRCopy";
    homepage = "";
    license = lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
  };
}
