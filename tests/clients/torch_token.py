#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What a decoded token costs the CPU with PyTorch, on a GPU: from the launch of the step to a Python int, the step included.

    python3 tests/clients/torch_token.py [STEPS]      with the wheel of `make wheel`, or barcopy and libgdrapi installed

The step stands for a decode loop's: the embedding of the last token, two layers, logits of 32000 words, argmax; each
step begins with the token of the one before, which stays on the GPU. Every way sees the same tokens, or the program
fails. One process, the ways interleaved in rounds; median and P99 of all rounds, in microseconds.
"""
import sys
import time

import barcopy
import torch

WORDS, WIDTH, ROUNDS = 32000, 1024, 10
MASK = (1 << 32) - 1


class Decoder:
    def __init__(self, gdr):
        torch.manual_seed(1)
        self.stream = torch.cuda.Stream()
        self.embedding = torch.randn(WORDS, WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.float16) / WIDTH ** 0.5 for _ in range(2)]
        self.head = torch.randn(WIDTH, WORDS, device="cuda", dtype=torch.float16)
        self.token = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.step = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.word = torch.zeros(1, dtype=torch.int64, device="cuda")  # step << 32 | token, one store of one kernel
        self.pinned = torch.zeros(1, dtype=torch.int64).pin_memory()
        self.polled = self.pinned.numpy()
        self.mapping = gdr.map(self.word)
        torch.cuda.synchronize()

    def reset(self):
        torch.cuda.synchronize()
        for tensor in (self.token, self.step, self.word, self.pinned):
            tensor.zero_()
        torch.cuda.synchronize()

    def launch(self, copy=False):
        with torch.cuda.stream(self.stream):
            hidden = self.embedding[self.token]
            for layer in self.layers:
                hidden = torch.tanh(hidden @ layer)
            self.token.copy_((hidden @ self.head).argmax(-1))
            self.step += 1 << 32
            torch.add(self.step, self.token, out=self.word)
            if copy:
                self.pinned.copy_(self.word, non_blocking=True)

    def item(self, step):
        self.launch()
        with torch.cuda.stream(self.stream):
            return self.word.item() & MASK

    def mapped(self, step):
        self.launch()
        self.stream.synchronize()
        return self.mapping.get64(0) & MASK

    def mapped_poll(self, step):
        self.launch()
        while (word := self.mapping.get64(0)) >> 32 != step:
            pass
        return word & MASK

    def copied(self, step):
        self.launch(copy=True)
        self.stream.synchronize()
        return int(self.polled[0]) & MASK

    def copied_poll(self, step):
        self.launch(copy=True)
        while (word := int(self.polled[0])) >> 32 != step:
            pass
        return word & MASK

    def ended(self, step):
        self.launch()
        self.stream.synchronize()


WAYS = (("step and synchronise, no token", Decoder.ended), (".item()", Decoder.item),
        ("synchronise, mapped read", Decoder.mapped), ("polled word through the mapping", Decoder.mapped_poll),
        ("pinned copy, synchronise", Decoder.copied), ("polled pinned copy", Decoder.copied_poll))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with barcopy.open() as gdr:
        decoder = Decoder(gdr)
        times, tokens = {name: [] for name, _ in WAYS}, None
        for round_ in range(ROUNDS + 1):  # the first one warms up
            for name, way in WAYS:
                decoder.reset()
                seen = []
                for step in range(1, steps + 1):
                    begin = time.perf_counter_ns()
                    seen.append(way(decoder, step))
                    if round_:
                        times[name].append((time.perf_counter_ns() - begin) / 1000)
                if seen[0] is not None:
                    tokens = tokens or seen
                    assert seen == tokens, f"{name}: other tokens"
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, backend {decoder.mapping.backend}, "
              f"{ROUNDS * steps} steps a way")
        for name, sample in times.items():
            sample.sort()
            print(f"{name:34} {sample[len(sample) // 2]:8.1f} {sample[len(sample) * 99 // 100]:8.1f}")


if __name__ == "__main__":
    main()
