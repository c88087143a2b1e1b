"""numpy_half.py -- times numpy's conversions between float16 and float32; prints name,elements,Gelem/s."""
import time
import numpy

N, CALLS = 4096, 200
floats = numpy.linspace(-0.5, 0.5, N, dtype=numpy.float32)
halves = floats.astype(numpy.float16)


def speed(out, source):
    times = []
    for _ in range(31):
        start = time.perf_counter()
        for _ in range(CALLS):
            numpy.copyto(out, source, casting="same_kind")
        times.append(time.perf_counter() - start)
    return N * CALLS / sorted(times)[15] * 1e-9


print("f32 -> f16,%d,%.4g" % (N, speed(halves.copy(), floats)))
print("f16 -> f32,%d,%.4g" % (N, speed(floats.copy(), halves)))
