#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the kernels of gdrcopy_pplat, as their PTX has them, against a CPU side: without a GPU this
shows that blocks and threads share the data without a gap, and that the rounds go in step.

    ptx.py FILE     FILE is the PTX text

The instructions are those that the kernels use, after the PTX ISA; one more is an error. Threads take
turns of a few instructions, so that orders differ; memory is sequentially consistent, so fences are
not judged.
"""
import random
import re
import sys

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
PING, PONG, STATUS, TIMES, DATA, ANSWER, WORD_END = 0, 0x1000, 0x2000, 0x3000, 0x10000, 0x20000, 0x30000
STOP = M32


def parse(text, name):
    """(parameter names, [(guard, operation, operands)], {label: index}) of an entry."""
    entry = text.split(f".entry {name}(", 1)[1]
    head, body = entry.split(")", 1)[0], entry.split("{", 1)[1].split("\n}", 1)[0]
    params = re.findall(r"\.u(?:32|64) (\w+)", head)
    code, labels = [], {}
    for line in body.split("\n"):
        line = line.strip().rstrip(";")
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        elif line and not line.startswith((".reg", ".shared")):
            guard, line = (line.split(None, 1) if line.startswith("@") else (None, line))
            op, _, rest = line.partition(" ")
            code.append((guard, op, [o.strip() for o in rest.split(",")] if rest else []))
    return params, code, labels


class Thread:
    def __init__(self, machine, block, me):
        self.machine, self.block, self.me = machine, block, me
        self.pc, self.regs, self.waiting, self.ended = 0, {}, False, False

    def value(self, o):
        m = self.machine
        special = {"%tid.x": self.me, "%ntid.x": m.threads, "%ctaid.x": self.block,
                   "%nctaid.x": m.blocks}
        if o == "%globaltimer":
            m.now += 1
            return m.now
        if o in special:
            return special[o]
        return self.regs[o] if o.startswith("%") else int(o, 0)

    def memory(self, op, o):
        inside = o.strip("[]")
        if ".shared" in op:
            return self.machine.shared[self.block], inside
        base, _, offset = inside.partition("+")
        address = self.value(base) + int(offset or 0)
        assert address % 4 == 0 and 0 <= address < WORD_END, f"address {address:#x}"
        return self.machine.memory, address

    def step(self):
        m = self.machine
        guard, op, o = m.code[self.pc]
        self.pc += 1
        if guard:
            wanted = not guard.startswith("@!")
            if bool(self.regs[guard.lstrip("@!")]) != wanted:
                return
        if op == "bra":
            self.pc = m.labels[o[0]]
        elif op == "ret":
            self.ended = True
        elif op == "bar.sync":
            self.waiting = True
        elif op == "membar.sys":
            pass
        elif op.startswith("ld.param"):
            self.regs[o[0]] = m.params[o[1].strip("[]")]
        elif op.startswith("ld.volatile"):
            space, at = self.memory(op, o[1])
            self.regs[o[0]] = space.get(at, 0)
        elif op.startswith("st.volatile"):
            space, at = self.memory(op, o[0])
            space[at] = self.value(o[1])
        elif op.startswith(("mov", "cvta")):
            self.regs[o[0]] = self.value(o[1])
        elif op == "mul.wide.u32":
            self.regs[o[0]] = self.value(o[1]) * self.value(o[2]) & M64
        elif op == "mul.lo.u32":
            self.regs[o[0]] = self.value(o[1]) * self.value(o[2]) & M32
        elif op == "mad.lo.u32":
            self.regs[o[0]] = self.value(o[1]) * self.value(o[2]) + self.value(o[3]) & M32
        elif op.startswith(("add.u", "sub.u")):
            mask = M64 if op.endswith("64") else M32
            b = self.value(o[2]) if op.startswith("add") else -self.value(o[2])
            self.regs[o[0]] = self.value(o[1]) + b & mask
        elif op == "or.pred":
            self.regs[o[0]] = self.value(o[1]) or self.value(o[2])
        elif op.startswith("setp."):
            a, b = self.value(o[1]), self.value(o[2])
            self.regs[o[0]] = {"eq": a == b, "ne": a != b, "gt": a > b, "ge": a >= b,
                               "lt": a < b}[op.split(".")[1]]
        else:
            raise ValueError(f"unknown instruction {op}")


class Machine:
    def __init__(self, text, name, values, blocks, threads, seed):
        names, self.code, self.labels = parse(text, name)
        self.params = dict(zip(names, values, strict=True))
        self.blocks, self.threads, self.now = blocks, threads, 1000
        self.memory, self.shared = {}, [{} for _ in range(blocks)]
        self.all = [Thread(self, b, t) for b in range(blocks) for t in range(threads)]
        self.random = random.Random(seed)

    def running(self):
        return [t for t in self.all if not t.ended]

    def turn(self):
        for t in self.random.sample(self.all, len(self.all)):
            for _ in range(self.random.randrange(1, 40)):
                if t.ended or t.waiting:
                    break
                t.step()
        for b in range(self.blocks):
            live = [t for t in self.all if t.block == b and not t.ended]
            if live and all(t.waiting for t in live):
                assert len(live) == self.threads, "a barrier that some threads have left"
                for t in live:
                    t.waiting = False

    def until(self, condition, turns=20000):
        for _ in range(turns):
            if condition():
                return
            self.turn()
        raise AssertionError("no progress")

    def words(self, at):
        return [self.memory.get(at + 4 * b, 0) for b in range(self.blocks)]


def cpu_first(text, words, blocks, threads, rounds, seed):
    m = Machine(text, "gdrcopy_pplat", (PING, PONG, STATUS, DATA, ANSWER, words, rounds, M64),
                blocks, threads, seed)
    for r in range(1, rounds + 1):
        for i in range(words):
            m.memory[DATA + 4 * i] = m.random.getrandbits(32)
        m.memory[PING] = r
        m.until(lambda: m.words(PONG) == [r] * blocks)
        for i in range(words):
            assert m.memory[ANSWER + 4 * i] == m.memory[DATA + 4 * i] + r & M32, (r, i)
    m.until(lambda: not m.running())
    assert m.words(STATUS) == [rounds] * blocks
    assert ANSWER + 4 * words not in m.memory, "a word too many"


def gpu_first(text, words, blocks, threads, rounds, seed):
    m = Machine(text, "gdrcopy_pplat_produce",
                (PING, PONG, STATUS, DATA, TIMES, words, rounds, 2, rounds - 2, M64),
                blocks, threads, seed)
    for r in range(1, rounds + 1):
        m.until(lambda: m.words(PONG) == [r] * blocks)
        seen = [m.memory[DATA + 4 * i] for i in range(words)]
        for _ in range(20):
            m.turn()  # nothing is overwritten before the ping
        assert seen == [m.memory[DATA + 4 * i] for i in range(words)] == [i + r for i in range(words)]
        assert m.words(STATUS) == [r - 1] * blocks
        m.memory[PING] = r
    m.until(lambda: not m.running())
    assert m.words(STATUS) == [rounds] * blocks
    assert DATA + 4 * words not in m.memory, "a word too many"
    for b in range(blocks):
        assert 0 < m.memory[TIMES + 16 * b] < m.memory[TIMES + 16 * b + 8]
    assert TIMES + 16 * blocks not in m.memory


def ends(text, name, words, ping):
    """A kernel that gets no answer ends: by the stop word, or by its timeout."""
    timeout = M64 if ping == STOP else 50
    values = {"gdrcopy_pplat": (PING, PONG, STATUS, DATA, ANSWER, words, 9, timeout),
              "gdrcopy_pplat_produce": (PING, PONG, STATUS, DATA, TIMES, words, 9, 1, 5, timeout)}
    m = Machine(text, name, values[name], 2, 3, 1)
    m.memory[PING] = ping
    m.until(lambda: not m.running())
    assert m.words(STATUS) == [0, 0]


def main():
    text = open(sys.argv[1]).read()
    for seed, (words, blocks, threads) in enumerate(
            [(0, 1, 1), (0, 1, 32), (1, 1, 32), (7, 1, 1), (64, 1, 32), (65, 2, 32), (5, 3, 4),
             (1000, 4, 16), (3, 8, 2)]):
        cpu_first(text, words, blocks, threads, 6, seed)
        gpu_first(text, words, blocks, threads, 8, seed)
    for name in ("gdrcopy_pplat", "gdrcopy_pplat_produce"):
        for words in (0, 10):
            for ping in (STOP, 0):
                ends(text, name, words, ping)


main()
