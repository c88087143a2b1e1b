"""numpy_report.py -- times a computation of range report figures in numpy (frexp, bincount, comparisons), on
gradients like those of bench_report.c; prints name,elements,Gelem/s."""
import time
import numpy

RUNS = 5


def report(x):
    a = numpy.abs(x[numpy.isfinite(x)])
    a = a[a != 0]
    histogram = numpy.bincount(numpy.frexp(a)[1] + 149)
    reach = [numpy.count_nonzero(a > 2.0 ** -25)]
    reach += [numpy.count_nonzero(a >= limit) for limit in (2.0 ** -14 - 2.0 ** -26, 65520.0)]
    return histogram, reach, a.min(), a.max()


def speed(x):
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        report(x)
        times.append(time.perf_counter() - start)
    return len(x) / sorted(times)[RUNS // 2] * 1e-9


for n in (1 << 20, 1 << 25):
    values = (numpy.random.default_rng(1).standard_normal(n) * 1e-3).astype(numpy.float32)
    print("range report by frexp and bincount,%d,%.4g" % (n, speed(values)))
