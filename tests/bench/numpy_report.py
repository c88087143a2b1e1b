"""numpy_report.py -- numpy's route to the figures of a range report (frexp, bincount, comparisons) on
gradients as bench_report.c makes them: name,elements,Gelem/s."""
import time
import numpy

N, RUNS = 1 << 20, 5
x = (numpy.random.default_rng(1).standard_normal(N) * 1e-3).astype(numpy.float32)


def report():
    a = numpy.abs(x[numpy.isfinite(x)])
    a = a[a != 0]
    histogram = numpy.bincount(numpy.frexp(a)[1] + 149)
    reach = [numpy.count_nonzero(a > 2.0 ** -25)]
    reach += [numpy.count_nonzero(a >= limit) for limit in (2.0 ** -14 - 2.0 ** -26, 65520.0)]
    return histogram, reach, a.min(), a.max()


def speed():
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        report()
        times.append(time.perf_counter() - start)
    return N / sorted(times)[RUNS // 2] * 1e-9


print("range report by frexp and bincount,%d,%.4g" % (N, speed()))
