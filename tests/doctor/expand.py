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
    closed PATH             a file that may not be read (by others than root)
    fifo PATH               a FIFO
    cpus NODES              NUMA nodes and their CPUs: '0=0-7@0 1=8-15@1', the socket behind '@'
    group NUMBER TYPE       an IOMMU group
    pci ADDR BELOW KEY=VALUE...   a PCI function at /sys/devices/BELOW/ADDR; keys:
        id=VVVV:DDDD class=CCCCCC numa=N driver=NAME group=N config=BYTES (what could be read: 64
        without privileges, 256, 4096) label=infiniband/mlx5_0 (a directory inside) physfn=ADDR
      and on indented lines behind it, its configuration space:
        bar I SIZE ADDRESS [64] [p]   region I: 64-bit, prefetchable
        cap OFFSET ID [HEX...]        a capability; next pointers are made in this order
        ecap OFFSET ID [HEX...]       an extended one; HEX is what stands behind its 4 header bytes
        poke OFFSET HEX...            bytes, last of all: what a broken one has

Layout of the configuration space: PCI Express Base Specification, 7.5.1.1 and 7.5.1.2.
"""
import os
import re
import struct
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text):
    return int(text[:-1], 0) * UNITS[text[-1]] if text[-1] in UNITS else int(text, 0)


class Function:
    """One PCI function: its configuration space and the files of its directory."""

    def __init__(self, words):
        self.addr, self.below = words[0], words[1]
        self.keys = dict(w.split("=", 1) for w in words[2:])
        unknown = set(self.keys) - {"id", "class", "numa", "driver", "group", "config", "label",
                                    "physfn"}
        if unknown:
            raise ValueError(f"unknown key {unknown}")
        self.vendor, self.device = (int(v, 16) for v in self.keys["id"].split(":"))
        self.cls = int(self.keys["class"], 16)
        self.bridge = self.cls >> 8 == 0x0604
        self.space = bytearray(4096)
        self.regions = [(0, 0, 0)] * 6
        self.last_cap = None  # offset of the byte that points to the next capability
        self.last_ecap = None
        header = struct.pack("<HHHHBBBBBBBB", self.vendor, self.device, 0x0406, 0x0010, 0xa1,
                             self.cls & 255, self.cls >> 8 & 255, self.cls >> 16, 0x10, 0,
                             1 if self.bridge else 0, 0)
        self.space[:len(header)] = header
        self.pokes = []
        self.caps = False

    def line(self, words):
        kind, args = words[0], words[1:]
        if kind == "bar":
            self.bar(int(args[0]), size_of(args[1]), int(args[2], 16), args[3:])
        elif kind == "cap":
            self.cap(int(args[0], 16), int(args[1], 16), bytes.fromhex("".join(args[2:])))
        elif kind == "ecap":
            self.ecap(int(args[0], 16), int(args[1], 16), bytes.fromhex("".join(args[2:])))
        elif kind == "poke":
            self.pokes.append((int(args[0], 16), bytes.fromhex("".join(args[1:]))))
        else:
            raise ValueError(f"unknown word {kind}")

    def bar(self, index, size, address, flags):
        low = (4 if "64" in flags else 0) | (8 if "p" in flags else 0)
        # IORESOURCE_MEM, _SIZEALIGN, _MEM_64, _PREFETCH, as the file "resource" has them
        kernel = 0x40200 | low | (0x100000 if "64" in flags else 0) | (0x2000 if "p" in flags else 0)
        self.regions[index] = (address, address + size - 1, kernel)
        struct.pack_into("<I", self.space, 0x10 + 4 * index, address & 0xffffffff | low)
        if "64" in flags:
            struct.pack_into("<I", self.space, 0x14 + 4 * index, address >> 32)

    def cap(self, offset, ident, body):
        self.space[self.last_cap if self.caps else 0x34] = offset
        self.caps = True
        self.space[offset:offset + 2] = bytes([ident, 0])
        self.space[offset + 2:offset + 2 + len(body)] = body
        self.last_cap = offset + 1

    def ecap(self, offset, ident, body):
        if self.last_ecap is None:
            assert offset == 0x100, "the first extended capability is at 100h"
        else:
            head, = struct.unpack_from("<I", self.space, self.last_ecap)
            struct.pack_into("<I", self.space, self.last_ecap, head | offset << 20)
        struct.pack_into("<I", self.space, offset, ident | 1 << 16)
        self.space[offset + 4:offset + 4 + len(body)] = body
        self.last_ecap = offset

    def write(self, tree):
        base = f"/sys/devices/{self.below}/{self.addr}"
        if not self.caps:
            self.space[6] &= ~0x10 & 255  # no capability list
        for offset, body in self.pokes:
            self.space[offset:offset + len(body)] = body
        tree.put(base + "/config", bytes(self.space[:int(self.keys.get("config", "4096"))]))
        tree.text(base + "/vendor", f"0x{self.vendor:04x}")
        tree.text(base + "/device", f"0x{self.device:04x}")
        tree.text(base + "/class", f"0x{self.cls:06x}")
        tree.text(base + "/numa_node", self.keys.get("numa", "-1"))
        tree.text(base + "/resource",
                  "\n".join(f"0x{a:016x} 0x{b:016x} 0x{c:016x}" for a, b, c in self.regions))
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
        self.text("/sys/devices/system/node/online", ",".join(w.split("=")[0] for w in words))
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
        elif kind == "closed":
            self.text(name, "closed")
            os.chmod(self.path(name), 0)
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
            if line[0].isspace():
                function.line(words)
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
