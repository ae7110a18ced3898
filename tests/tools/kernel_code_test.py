"""Disassembles the vector code of the CPU kernels: python3 kernel_code_test.py LIBRARY...

A sum that visits the stack in every turn of a loop costs up to five times the loop's own time, and nothing but the
machine code shows it. So no loop of these functions may write a vector to the stack."""
import re
import subprocess
import sys

# Functions by pattern of their demangled names, and how many the libraries have at least.
CHECKED = {
    r"::(avx2|avx512|vnni)::multiply<": 90,  # 18 of fp32 and bf16 each in two sets, 18 of int8 in two
    r"\b(normalize_row|activate|attend_query|finish_panel|softmax_rows\w*|apply_groups)\(.*arch_x86_64_v[34]": 12,
    r"\bsoftmax_rows_avx2\(": 1,
}
FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
STACK_STORE = re.compile(r"%[xyz]mm\d+,(-?0x[0-9a-f]+)?\(%(rsp|rbp)")
SCALAR = ("vmovss", "vmovsd", "vmovd", "vmovq")


def functions(library):
    """Yields the name of each function of a library with its instructions: (address, name, operands)."""
    listing = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", library], check=True, capture_output=True, text=True)
    name, instructions = None, []
    for line in listing.stdout.splitlines():
        if found := FUNCTION.match(line):
            if name:
                yield name, instructions
            name, instructions = found[2], []
        elif found := INSTRUCTION.match(line):
            instructions.append((int(found[1], 16), found[2], found[3]))
    if name:
        yield name, instructions


def stores_in_loops(instructions):
    """Returns the instructions of innermost loops (from a backward jump's target to the jump) that write a vector to the
    stack."""
    begin = instructions[0][0]
    loops = []
    for address, name, operands in instructions:
        target = re.match(r"([0-9a-f]+) <", operands)
        if name.startswith("j") and target and begin <= int(target[1], 16) < address:
            loops.append((int(target[1], 16), address))
    inner = [(first, last) for first, last in loops
             if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops)]
    return [f"{address:x}: {name} {operands}" for address, name, operands in instructions
            if STACK_STORE.search(operands) and name not in SCALAR
            and any(first <= address <= last for first, last in inner)]


def main():
    counts = dict.fromkeys(CHECKED, 0)
    failed = []
    for library in sys.argv[1:]:
        for name, instructions in functions(library):
            pattern = next((pattern for pattern in CHECKED if re.search(pattern, name)), None)
            if pattern is None:
                continue
            counts[pattern] += 1
            if stores := stores_in_loops(instructions):
                failed.append(f"{name}: {len(stores)} vectors to the stack in loops, the first is {stores[0]}")
    for pattern, fewest in CHECKED.items():
        if counts[pattern] < fewest:
            failed.append(f"{pattern}: {counts[pattern]} functions, expected at least {fewest}")
    print("\n".join(failed) or f"{sum(counts.values())} functions, no vector goes to the stack in a loop")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
