"""mutate.py SECTION [COUNT [SEED]] -- mutation testing: would a test notice a bug? Makes one change at a time
in a section of the headers (such as M18): of an operator, a constant, a condition, or a statement left out.
Builds, and runs the tests that reach the line (found by gcov, once per state of headers and tests), the
quickest first, until one fails; then tests/cut.c on three threads, and the same tests under the sanitizers.
For a line that gcov does not count (a constant, a part of a macro) it runs all tests that reach the section,
so a mutant of a table that only other sections read may survive wrongly; for declarations it runs all tests. A
mutant that compiles to the same code is equivalent, and so is one in tests/mutants_equivalent, in a
row with the reason:
    SECTION | the line as mutated | reason
It prints the other survivors (a test is missing, or nothing needs the code) and mutants in code that this
processor does not run. Run by `make mutate SECTION=M18`: COUNT mutants (40), drawn by SEED (1), the same ones
as long as their lines stay; or all whose line has the text COUNT. CC (cc) must be gcc. `make mutate
SECTION=stale` prints only the rows of mutants_equivalent whose line is no longer a mutant of its section."""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOM = "build/mutate"
SWAPS = [(r"<=", "<"), (r">=", ">"), (r"(?<![<\-])<(?![<=])", "<="), (r"(?<![>\-])>(?![>=])", ">="),
         (r"==", "!="), (r"!=", "=="), (r"&&", "||"), (r"\|\|", "&&"), (r"<<", ">>"), (r">>", "<<"),
         (r"(?<=[\w)\]] )\+(?= )", "-"),
         (r"(?<=[\w)\]] )-(?= )", "+"), (r"(?<=[\w)\]] )\*(?= \w)", "+"), (r"(?<=[\w)\]] )&(?= )", "|"),
         (r"(?<=[\w)\]] )\|(?= )", "&"), (r"\+=", "-="), (r"-=", "+="), (r"\|=", "&="), (r"&=", "|="),
         (r"\bif \((?=.*\)$)", "if (!"), (r"\bMPT_OK\b", "MPT_E_ARG")]
CC = os.environ.get("CC", "cc")
FLAGS = ["-std=c99", "-O1", "-w", "-I."]
POOLED = ["-std=gnu99", "-O1", "-w", "-I.", "-include", "tests/pool.h", "-DMPT_STATIC",
          "-DMPT_IMPLEMENTATION", "tests/cut.c", "tests/pool.c", "-o", "cut", "-lm", "-pthread"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def mutants(lines, first, last):
    """(line number, new line) of every possible mutant."""
    comment = False
    for i in range(first, last):
        line = lines[i]
        if comment or line.lstrip().startswith(("/*", "#", "//", "*")):
            comment = "*/" not in line if comment or "/*" in line else False
            continue
        code = line.split("/*")[0]
        comment = "/*" in line and "*/" not in line
        quoted = [m.span() for m in re.finditer(r'"[^"]*"', code)]
        for pattern, new in SWAPS:
            for m in re.finditer(pattern, code):
                if not any(a <= m.start() < b for a, b in quoted):
                    yield i, line[:m.start()] + new + line[m.end():]
        for m in re.finditer(r"(?<![\w.])(\d+)(?=u?\b(?![.x\w]))", code):
            if not any(a <= m.start() < b for a, b in quoted):
                yield i, line[:m.start()] + str(int(m.group()) + 1) + line[m.end():]
        if re.match(r"^ +[\w(>\-*.\[\] ]+(=|\(|\+\+).*;$", code.rstrip()) and not re.match(
                r"^ *(return|const|static|else|for|(?:u?int|size|mpti?|float|double|char|unsigned)\w* [\w*])",
                code):
            yield i, f"    ; /* {line.strip()} */"


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def run(command, cwd, **more):
    """The exit status of a command; 124 if it took longer than its timeout."""
    more.setdefault("timeout", 600.0)
    try:
        return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              **more).returncode
    except subprocess.TimeoutExpired:
        return 124


def reach(sources):
    """{"program test": {"time": seconds, "header": [lines run], "idle": {"header": [lines not run]}}}, from
    gcov; stored in a file until the headers or the test change."""
    def stamp(*paths):
        return hashlib.sha1("".join(read(p) for p in paths).encode()).hexdigest()
    shared = ["mpt_half.h", "mpt.h"] + sorted(glob.glob("tests/*.h")) + ["tests/impl.c"]
    kept = json.loads(read(ROOM + "/reach.json")) if os.path.exists(ROOM + "/reach.json") else {}
    stamps = {t: stamp(*shared, f"tests/{t}.c") for t in sources}
    kept = {name: v for name, v in kept.items() if stamps.get(name.split()[0]) == v["stamp"]}
    counted = FLAGS + ["-fno-inline", "--coverage", "-c"]       # gcov does not count all inlined lines
    todo = [t for t in sources if not any(name.startswith(t + " ") for name in kept)]
    if todo:
        print("what each test reaches:", " ".join(todo), flush=True)
        room = ROOM + "/reach"
        shutil.rmtree(room, ignore_errors=True)
        shutil.copytree("tests", room + "/tests", ignore=shutil.ignore_patterns("bench", "emu", "fuzz"))
        for h in "mpt_half.h", "mpt.h":
            shutil.copy(h, room)
        run([CC] + counted + ["tests/impl.c", "-o", "impl.o"], room, check=True)
    for t in todo:
        run([CC] + counted + [f"tests/{t}.c", "-o", t + ".o"], room, check=True)
        run([CC, "--coverage", t + ".o", "impl.o", "-o", t, "-lm"], room, check=True)
        for test in sorted(set(re.findall(r"\bRUN(?:_EXACT)?\((\w+)\);", sources[t]))) or [""]:
            for old in glob.glob(room + "/*.gcda"):
                os.remove(old)
            idle = {"mpt.h": set(), "mpt_half.h": set()}
            began = time.monotonic()
            if run(["./" + t] + test.split(), room):
                sys.exit(f"{t} {test} does not pass as it is")
            got = {"stamp": stamps[t], "time": time.monotonic() - began, "mpt.h": set(), "mpt_half.h": set()}
            for data in glob.glob(room + "/*.gcda"):
                text = subprocess.run(["gcov", "--json-format", "--stdout", os.path.basename(data)], cwd=room,
                                      stdout=subprocess.PIPE, check=True).stdout
                for file in json.loads(text)["files"]:
                    if os.path.basename(file["file"]) in got:
                        for x in file["lines"]:
                            lines = got if x["count"] else idle
                            lines[os.path.basename(file["file"])].add(x["line_number"])
            got["idle"] = {h: sorted(v) for h, v in idle.items()}
            kept[f"{t} {test}"] = {k: sorted(v) if isinstance(v, set) else v for k, v in got.items()}
    write(ROOM + "/reach.json", json.dumps(kept))
    return kept


def section_of(name, lines):
    """The index of a section's first line, and of the line after its last."""
    marks = [i for i, s in enumerate(lines) if s.startswith("// >>")] + [len(lines)]
    first = next((i for i in marks[:-1] if lines[i].startswith(f"// >>{name} ")), None)
    if first is None:
        sys.exit(f"no section >>{name}")
    return first, marks[marks.index(first) + 1]


def bare(line):
    """A row of mutants_equivalent has a macro's line without the backslash at its end."""
    return line.rstrip(" \\").strip()


def excused(headers):
    """{(section, mutated line): reason} from tests/mutants_equivalent; prints the stale rows."""
    rows = {}
    for row in read("tests/mutants_equivalent").split("\n"):
        if row and not row.startswith("#"):
            section, line = row.split(" | ", 1)
            line, reason = line.rsplit(" | ", 1)
            rows[section, bare(line)] = reason
    for name in sorted({s for s, _ in rows}):
        lines = headers["mpt_half.h" if name[0] == "H" else "mpt.h"]
        alive = {bare(new) for _, new in mutants(lines, *section_of(name, lines))}
        for s, new in rows:
            if s == name and new not in alive:
                print(f"tests/mutants_equivalent: stale: {s} | {new}", flush=True)
    return rows


def main():
    section, count = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "40"
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    os.nice(5)
    headers = {h: read(h).split("\n") for h in ("mpt_half.h", "mpt.h")}
    known = excused(headers)
    if section == "stale":
        return
    header = "mpt_half.h" if section[0] == "H" else "mpt.h"
    lines = headers[header]
    first, last = section_of(section, lines)
    pool, seen = [], {}
    for i, new in mutants(lines, first + 1, last):
        if not count.isdigit() and count not in new:
            continue
        seen[new] = seen.get(new, 0) + 1
        pool.append((hashlib.sha1(f"{seed} {seen[new]} {new}".encode()).digest(), i, new))
    pool.sort()
    sources = {os.path.basename(t)[:-2]: read(t) for t in glob.glob("tests/test_*.c")}
    room = ROOM + "/" + section
    shutil.rmtree(room, ignore_errors=True)
    os.makedirs(room)
    reached = reach(sources)
    shutil.copytree("tests", room + "/tests", ignore=shutil.ignore_patterns("bench", "emu", "fuzz"))
    for h in headers:
        shutil.copy(h, room)
    # After a change only its part of the implementation is built again, and the tests that contain their own.
    guards = [i for i, s in enumerate(lines) if re.match(r"#if \(?defined\(MPT_(HALF|TRAIN)_IMPL", s)]
    inside = any(i < first + 3 for i in guards)
    impl = read("tests/impl.c")
    if inside and section != "H12":
        part, rest = ("HALF", "TRAIN") if section[0] == "H" else ("TRAIN", "HALF")
        define = "#define MPT_IMPLEMENTATION\n"
        shared = "".join(s + "\n" for s in impl.split("\n") if s.startswith(("#if", "#end", "#define MPTI_")))
        write(room + "/tests/train.c", impl.replace(define, "#define MPT_TRAIN_IMPLEMENTATION\n"))
        write(room + "/tests/half.c",
              f'#include "impl.h"\n{shared}#define MPT_HALF_IMPLEMENTATION\n#include "mpt.h"\n')
        units = {"HALF": "half", "TRAIN": "train"}
        mutated, fixed = [units[part]], [units[rest]]
    else:
        mutated, fixed = ["impl"], []

    sums = {}       # checksums of the object files without a mutation

    def build(unit):
        if run([CC] + FLAGS + ["-c", f"tests/{unit}.c", "-o", unit + ".o"], room):
            return None
        with open(f"{room}/{unit}.o", "rb") as f:
            return hashlib.sha1(f.read()).digest()

    def link(t):
        return run([CC, t + ".o"] + [u + ".o" for u in mutated + fixed] + ["-o", t, "-lm"], room, check=True)

    idle = {x for v in reached.values() for x in v["idle"][header]}
    anywhere = [n for n, v in reached.items() if not inside or any(first < x <= last for x in v[header])]
    programs = sorted({n.split()[0] for n in anywhere})
    affected = {t for t in programs if not inside or "define MPT_STATIC" in sources[t]}
    for unit in fixed + mutated + programs:
        sums[unit] = build(unit)
        if sums[unit] is None:
            sys.exit(f"{unit} does not compile")
    for t in programs:
        link(t)
    three = dict(os.environ, POOL_THREADS="3")
    if run([CC] + POOLED, room) or run(["./cut"], room, timeout=60.0, env=three):
        sys.exit("cut does not pass")
    print("programs:", " ".join(programs), flush=True)

    def judge(i, new):
        """"no" (it does not compile), "unreached", "same", "killed" or "survived"; and the tests that ran."""
        write(f"{room}/{header}", "\n".join(lines[:i] + [new] + lines[i + 1:]))
        now = {}
        for unit in mutated:
            now[unit] = build(unit)
            if now[unit] is None:
                return "no", []
        names = [n for n in anywhere if i + 1 in reached[n][header]]
        if not names and i + 1 in idle:
            return "unreached", []
        names = names or anywhere
        names.sort(key=lambda n: reached[n]["time"])
        built, same, tried = set(), set(), []
        for n in names:
            t = n.split()[0]
            if t in same:
                continue
            if t not in built:
                if t in affected:
                    now[t] = build(t)
                    if now[t] is None:
                        return "no", []
                if any(sums[u] != now[u] for u in now if u in mutated or u == t):
                    link(t)
                    built.add(t)
                else:
                    same.add(t)
                    continue
            tried.append(n)
            if run(["./" + t] + n.split()[1:], room, timeout=10.0 * reached[n]["time"] + 2.0):
                return "killed", tried
        if not tried:
            return "same", tried
        if run([CC] + POOLED, room):
            return "no", tried
        if run(["./cut"], room, timeout=60.0, env=three):
            return "killed", tried
        if run([CC] + FLAGS + SANITIZE + ["-c", "tests/impl.c", "-o", "sanitized.o"], room):
            return "no", tried
        for t in {n.split()[0] for n in tried}:
            run([CC] + FLAGS + SANITIZE + [f"tests/{t}.c", "sanitized.o", "-o", t + "-sanitized", "-lm"], room)
        for n in tried:
            if run([f"./{n.split()[0]}-sanitized"] + n.split()[1:], room):
                return "killed", tried
        return "survived", tried

    tally = dict.fromkeys(("killed", "survived", "unreached", "same", "known"), 0)
    for _, i, new in pool:
        if count.isdigit() and sum(tally.values()) == int(count):
            break
        if (section, bare(new)) in known:
            tally["known"] += 1
            continue
        verdict, tried = judge(i, new)
        if verdict == "no":
            continue
        tally[verdict] += 1
        if verdict in ("survived", "unreached"):
            reaches = sum(i + 1 in reached[n][header] for n in tried)
            print(f"{header}:{i + 1}: {verdict}: {reaches or 'no'} tests reach it"
                  f"{'' if reaches or not tried else f', {len(tried)} the section'}\n  - {lines[i].strip()}\n"
                  f"  + {new.strip()}", flush=True)
    equivalent = tally["same"] + tally["known"]
    total = sum(tally.values())
    print(f"{section}: {total} mutants, {equivalent} equivalent ({tally['same']} the same code), "
          f"{tally['killed']} of {total - equivalent} others killed, {tally['unreached']} lie in code that "
          f"no test runs here; {len(pool)} in all")


main()
