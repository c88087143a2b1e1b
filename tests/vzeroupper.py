"""vzeroupper.py ASSEMBLY [returns] -- do functions with wide vectors leave the registers as SSE code wants them?

On many processors an SSE instruction waits, on some for a hundred nanoseconds and more, if the upper halves
of vector registers are not zero. Compilers insert vzeroupper before calls and returns, but gcc does not where
it knows the callee (-fipa-ra): a helper that is not inline; and at -O1 and -Os nowhere. This follows the flow of
each function of x86-64 AT&T assembly and prints those that call SSE code, or return, with upper halves that may
not be zero; with the word `returns`, those that return so."""
import re
import sys

LEGACY = re.compile(r"(?!v)[a-z]\w*\s.*%xmm")


def functions(lines):
    """The instructions and labels of each function, by its name; with its cold part, where gcc splits it."""
    found, body = {}, []
    for line in lines:
        name = re.match(r"([A-Za-z_][\w.]*):", line)
        line = line.split("#")[0].strip()
        if name:
            body = found.setdefault(name[1].split(".cold")[0], [])
        elif line.endswith(":") or (line and not line.startswith(".")):
            body.append(line)
    return found


def faults(body, legacy):
    """What of a function runs while the upper halves may be dirty."""
    labels = {line[:-1]: i for i, line in enumerate(body) if line.endswith(":")}
    seen, found, work = {}, set(), [(0, False)]
    while work:
        i, dirty = work.pop()
        while i < len(body) and (i not in seen or dirty and not seen[i]):
            seen[i] = dirty
            line = body[i]
            if line.startswith("vzero"):
                dirty = False
            elif re.search(r"%[yz]mm", line):
                dirty = True
            elif dirty and LEGACY.match(line):
                found.add(line)
            jump = re.match(r"(call|j\w+)q?\s+\*?([\w.]+)", line)
            if jump and jump[2] in labels:
                work.append((labels[jump[2]], dirty))
            elif jump and dirty and legacy.get(jump[2], True):
                found.add("calls " + jump[2])
            if dirty and re.match(r"retq?$", line):
                found.add("returns")
            if re.match(r"(jmp|ret)q?\b", line):
                break
            i += 1
    return found


def main():
    with open(sys.argv[1]) as text:
        found = functions(text)
    legacy = {name: any(LEGACY.match(line) for line in body) for name, body in found.items()}
    wide = {name: body for name, body in found.items() if any(re.search(r"%[yz]mm", line) for line in body)}
    bad = {name: faults(body, legacy) for name, body in wide.items()}
    if sys.argv[2:]:
        bad = {name: found & {sys.argv[2]} for name, found in bad.items()}
    for name in sorted(name for name in bad if bad[name]):
        print("%s: %s" % (name, ", ".join(sorted(bad[name])[:3])))
    print("%d functions with wide vectors" % len(wide))
    sys.exit(1 if any(bad.values()) or not wide else 0)


main()
