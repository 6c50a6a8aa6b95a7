"""How much of a process's memory is in use, by Python's allocator and by that of the C library (glibc 2.33 or later).

What is resident beyond it is free, and waits for the next load: CPython gives a mebibyte back only where nothing in it
is in use.
"""

import ctypes
import gc
import os
import re
import sys

IN_USE = "bytes in use"
STATISTICS_BYTES_MAX = 1 << 20
_PYTHONS_BLOCKS = re.compile(rb"# bytes in allocated blocks *= *([0-9,]+)")
_MALL_INFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the C library."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALL_INFO.split())


def bytes_in_use() -> int:
    """Without garbage: it takes some hundredths of a second."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    info = mallinfo()
    found = _PYTHONS_BLOCKS.search(_allocator_statistics())
    assert found is not None, "Python's allocator says nothing of its blocks"
    return int(found[1].replace(b",", b"")) + int(info.uordblks) + int(info.hblkhd)


def _allocator_statistics() -> bytes:
    """What `sys._debugmallocstats` prints: Python has no other way to say it."""
    standard_error = os.dup(2)
    file = os.memfd_create("statistics")
    try:
        os.dup2(file, 2)
        sys._debugmallocstats()
        os.lseek(file, 0, os.SEEK_SET)
        return os.read(file, STATISTICS_BYTES_MAX)
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(file)
