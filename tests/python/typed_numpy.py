# SPDX-License-Identifier: MIT
"""As typed_use.py, with numpy."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
import barcopy
import numpy


def use(gdr: barcopy.Context) -> None:
    m = gdr.alloc((4, 4), numpy.float32)
    data = numpy.zeros((4, 4), numpy.float32)
    m.write(data)
    m.write(numpy.float32(1.5))
    m.read_into(data)
    m.write_pieces([(0, data[0]), (16, data[1], True)])
    m.read_pieces([(0, data[0])])
    m.array()[0] = m.array("int32", (4, -1))[1]
    i = numpy.argmax(data)
    m[i] = m[i, 0]
    print(numpy.asarray(m), m.dtype == numpy.float32)
    gdr.map(data).close()
    gdr.map(numpy.uint64(0x10000), 64).close()
