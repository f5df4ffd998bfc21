# SPDX-License-Identifier: MIT
"""What a program does, for mypy and Pyright in their strict modes, without numpy. It is not run."""
import array

import barcopy


def use(tensor_address: int) -> bytes:
    with barcopy.open() as gdr, gdr.map(tensor_address, 64, read_only=False, stream="current") as m:
        m.write(b"x")
        m.write([1.0, 2.0], 4, stream=None)
        m.write(3)
        m.write(array.array("f", [1.0]), stream=7)
        buffer = bytearray(4)
        m.read_into(buffer)
        m.put32(0, 1)
        number = m.get32(0) + m.size + m.nbytes + len(m) + m.itemsize + m.ndim
        m[0] = 5
        element = m[0]
        print(element, number, m.shape, m.dtype, m.device, m.backend, m.closed, m.busy, repr(m))
        m.wait32(0, "==", 1, timeout=1.0)
        m.fence(barcopy.AFTER_WRITE)
        view = m.view()
        view[0:1] = b"y"
        m.write_pieces([(0, b"a"), (4, buffer, True)], fence=False)
        with gdr.alloc((4, 4), "float32", device="cuda:0") as mem, gdr.pin(mem) as pin, pin.map() as again:
            print(pin.info().mapped_size, again.address, mem.export())
        with gdr.cache(max_bytes=1 << 20) as cache, cache.get(m) as region:
            print(cache.stats().hits, region.read(4))
        with gdr.queue(lines=16) as queue, gdr.port(lines=16) as port:
            queue.send(b"x", timeout=0.0)
            for post in port.receive():
                print(post.number, post.message, post.call)
        print(gdr.bar_info().free, gdr.driver_version(), gdr.stats().pins, barcopy.stats().maps)
        return m.read(4)
