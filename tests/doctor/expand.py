#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the files of made-up machines from their descriptions.

    expand.py DIR MACHINE.tree...          makes DIR/MACHINE for each

The description, one thing a line; '#' begins a comment line:

    text PATH WORDS         a file of one line
    file PATH               a file; its lines follow, each behind '| '
    bytes PATH HEX...       a file of these bytes
    fill PATH COUNT TEXT    a file of COUNT times TEXT
    dir PATH                a directory (others are made as needed)
    link PATH TARGET        a symbolic link, its target as it stands
    fifo PATH               a FIFO
    cpus NODES              NUMA nodes and their CPUs: '0=0-7@0 1=8-15@1', the socket behind '@'
    group NUMBER TYPE       an IOMMU group
    pci ADDR BELOW KEY=VALUE...   a PCI function at /sys/devices/BELOW/ADDR; keys:
        id=VVVV:DDDD class=CCCCCC numa=N driver=NAME group=N gone=1 (its header reads as ones)
        label=infiniband/mlx5_0 (a directory inside) physfn=ADDR

What is no file (trials, answers of libraries, nodes) stands in MACHINE.probes, whose entries are the
members of struct probes (tools/doctor/probe.h) in the form of tests/doctor/test_machines.c. For a machine that
exists, `gdrcopy_doctor --json` there names most of them; copy the files that matter by hand, and leave out
what names the machine or its owner.
"""
import os
import re
import struct
import sys


class Function:
    """One PCI function: the files of its directory."""

    def __init__(self, words):
        self.addr, self.below = words[0], words[1]
        self.keys = dict(w.split("=", 1) for w in words[2:])
        unknown = set(self.keys) - {"id", "class", "numa", "driver", "group", "label", "gone",
                                    "physfn"}
        if unknown:
            raise ValueError(f"unknown key {unknown}")
        self.vendor, self.device = (int(v, 16) for v in self.keys["id"].split(":"))
        self.cls = int(self.keys["class"], 16)

    def write(self, tree):
        base = f"/sys/devices/{self.below}/{self.addr}"
        header = struct.pack("<HHHHI", self.vendor, self.device, 0x0406, 0, self.cls << 8)
        tree.put(base + "/config", b"\xff" * 64 if "gone" in self.keys else header.ljust(64, b"\0"))
        tree.text(base + "/vendor", f"0x{self.vendor:04x}")
        tree.text(base + "/device", f"0x{self.device:04x}")
        tree.text(base + "/class", f"0x{self.cls:06x}")
        tree.text(base + "/numa_node", self.keys.get("numa", "-1"))
        up = "../" * len(base.strip("/").split("/"))
        if "driver" in self.keys:
            name = self.keys["driver"]
            tree.directory(f"/sys/bus/pci/drivers/{name}")
            tree.link(base + "/driver", f"{up}sys/bus/pci/drivers/{name}")
        if "group" in self.keys:
            tree.link(base + "/iommu_group", f"{up}sys/kernel/iommu_groups/{self.keys['group']}")
        if "label" in self.keys:
            tree.directory(f"{base}/{self.keys['label']}")
        if "physfn" in self.keys:
            tree.link(base + "/physfn", f"../{self.keys['physfn']}")
        tree.link(f"/sys/bus/pci/devices/{self.addr}",
                  f"../../../devices/{self.below}/{self.addr}")


class Tree:
    def __init__(self, top):
        self.top = top

    def path(self, name):
        path = self.top + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def put(self, name, data):
        with open(self.path(name), "wb") as out:
            out.write(data)

    def text(self, name, text):
        self.put(name, text.encode() + b"\n")

    def directory(self, name):
        os.makedirs(self.path(name), exist_ok=True)

    def link(self, name, target):
        os.symlink(target, self.path(name))

    def cpus(self, words):
        for word in words:
            node, cpus, socket = re.fullmatch(r"(\d+)=([\d,-]*)@(\d+)", word).groups()
            self.text(f"/sys/devices/system/node/node{node}/cpulist", cpus)
            first = re.match(r"\d+", cpus)
            if first:
                self.text(f"/sys/devices/system/cpu/cpu{first[0]}/topology/physical_package_id",
                          socket)

    def line(self, words, rest):
        kind, name = words[0], words[1]
        if kind == "text":
            self.text(name, rest.split(None, 1)[1])
        elif kind == "bytes":
            self.put(name, bytes.fromhex("".join(words[2:])))
        elif kind == "fill":
            self.put(name, " ".join(words[3:]).encode() * int(words[2]))
        elif kind == "dir":
            self.directory(name)
        elif kind == "link":
            self.link(name, words[2])
        elif kind == "fifo":
            os.mkfifo(self.path(name))
        elif kind == "cpus":
            self.cpus(words[1:])
        elif kind == "group":
            self.text(f"/sys/kernel/iommu_groups/{name}/type", words[2])
        else:
            raise ValueError(f"unknown word {kind}")


def expand(name_of_lines, lines, tree):
    function, name, content = None, None, []

    def finish():
        if function:
            function.write(tree)
        if name:
            tree.put(name, "".join(content).encode())

    for number, line in enumerate(lines, 1):
        words = line.split()
        try:
            if line.startswith("| ") or line.rstrip() == "|":
                content.append(line[2:] if line[1:2] == " " else "\n")
                continue
            if not words or words[0].startswith("#"):
                continue
            finish()
            function, name, content = None, None, []
            if words[0] == "pci":
                function = Function(words[1:])
            elif words[0] == "file":
                name = words[1]
            else:
                tree.line(words, line.strip().split(None, 1)[1])
        except Exception as error:
            sys.exit(f"{name_of_lines}:{number}: {line.rstrip()}: {error}")
    finish()


def main():
    for name in sys.argv[2:]:
        top = f"{sys.argv[1]}/{os.path.basename(name).removesuffix('.tree')}"
        os.makedirs(top)
        with open(name, encoding="utf-8") as description:
            expand(name, description, Tree(top))


if __name__ == "__main__":
    main()
