"""mutate.py SECTION [COUNT [SEED]] -- would a test see it? Changes one thing at a time in a section of the
headers (>>M18, say): an operator, a constant, a condition, a statement left out; builds the tests
that call its functions and runs them, the quickest first, until one fails. Tells the mutants that none
killed: a missing test, or a change that changes nothing. Run by `make mutate SECTION=M18`; COUNT mutants (40) drawn by SEED (1). CC, default cc."""
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import time

SWAPS = [(r"<=", "<"), (r">=", ">"), (r"(?<![<\-])<(?![<=])", "<="), (r"(?<![>\-])>(?![>=])", ">="),
         (r"==", "!="), (r"!=", "=="), (r"&&", "||"), (r"\|\|", "&&"), (r"<<", ">>"), (r">>", "<<"),
         (r"(?<=[\w)\]] )\+(?= )", "-"),
         (r"(?<=[\w)\]] )-(?= )", "+"), (r"(?<=[\w)\]] )\*(?= \w)", "+"), (r"(?<=[\w)\]] )&(?= )", "|"),
         (r"(?<=[\w)\]] )\|(?= )", "&"), (r"\+=", "-="), (r"-=", "+="), (r"\|=", "&="), (r"&=", "|="),
         (r"\bif \((?=.*\)$)", "if (!"), (r"\bMPT_OK\b", "MPT_E_ARG")]


def mutants(lines, first, last):
    """(line number, new line) for all that can be changed."""
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
            yield i, "    ;"


def main():
    section, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
    header = "mpt_half.h" if section[0] == "H" else "mpt.h"
    lines = open(header).read().split("\n")
    marks = [i for i, s in enumerate(lines) if s.startswith("// >>")] + [len(lines)]
    first = next((i for i in marks[:-1] if lines[i].startswith(f"// >>{section} ")), None)
    if first is None:
        sys.exit(f"{header} has no section >>{section}")
    pool = list(mutants(lines, first + 1, marks[marks.index(first) + 1]))
    random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1).shuffle(pool)
    body = "\n".join(lines[first:marks[marks.index(first) + 1]])
    names = set(re.findall(r"^(?:MPTI?_DEF|MPT_HD) [^;{]*?\b(mpt_\w+)\(", body, re.M))
    texts = {os.path.basename(t)[:-2]: open(t).read() for t in glob.glob("tests/test_*.c")}
    uses = {t: sum(text.count(n + "(") for n in names) for t, text in texts.items()}
    tests = [t for t in uses if uses[t] or not names]
    room = "build/mutate-" + section
    shutil.rmtree(room, ignore_errors=True)
    os.makedirs(room)
    shutil.copytree("tests", room + "/tests", ignore=shutil.ignore_patterns("bench", "emu", "fuzz"))
    for h in "mpt_half.h", "mpt.h":
        shutil.copy(h, room)
    cc = [os.environ.get("CC", "cc"), "-std=c99", "-O1", "-w", "-I."]
    seconds = {t: 60.0 for t in tests}
    inside = any(re.match(r"#if \(?defined\(MPT_(HALF|TRAIN)_IMPLEMENTATION\)", s) for s in lines[:first + 3])
    built = set()       # tests, whose code no change behind the guard of the implementation reaches

    def compiles(source, to):
        return not subprocess.run(cc + ["-c", source, "-o", to], cwd=room, stderr=subprocess.DEVNULL).returncode

    def survives():
        """None if it does not compile, else whether all tests pass, the quickest first."""
        if not compiles("tests/impl.c", "impl.o"):
            return None
        for t in sorted(tests, key=lambda t: seconds[t]):
            if t not in built and not compiles(f"tests/{t}.c", t + ".o"):
                return None
            if inside and "define MPT_STATIC" not in texts[t]:
                built.add(t)
            if subprocess.run(cc + [t + ".o", "impl.o", "-o", t, "-lm"], cwd=room,
                              stderr=subprocess.DEVNULL).returncode:
                return None
            began = time.monotonic()
            try:
                if subprocess.run(["./" + t], cwd=room, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=10.0 * seconds[t] + 5.0).returncode:
                    return False
            except subprocess.TimeoutExpired:
                return False
            seconds[t] = min(seconds[t], time.monotonic() - began)
        return True

    if survives() is not True:
        sys.exit("the tests do not pass as they are")
    print("tests:", " ".join(sorted(tests, key=lambda t: seconds[t])), flush=True)
    killed = survived = 0
    for i, new in pool:
        if killed + survived == count:
            break
        open(f"{room}/{header}", "w").write("\n".join(lines[:i] + [new] + lines[i + 1:]))
        alive = survives()
        if alive:
            survived += 1
            print(f"{header}:{i + 1}: survived\n  - {lines[i].strip()}\n  + {new.strip()}", flush=True)
        elif alive is False:
            killed += 1
    print(f"{section}: {killed} of {killed + survived} killed, {len(pool)} mutants in all")


main()
