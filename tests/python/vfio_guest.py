"""Boot a small Linux guest with vfio-user devices and run one program in it.

The guest is real Linux with the real vfio-pci driver and an emulated IOMMU.  A test uses it to check a program that
drives a PCI device through /dev/vfio, on a host that needs no such device.

``prepare`` fetches an emulator, a kernel and a shell from a Debian mirror.  It unpacks them into one folder and
installs nothing on the host.  ``Guest.run`` boots the guest, runs the program and returns its exit status.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import lzma
import os
import re
import shlex
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MIRROR = "http://deb.debian.org/debian"
STABLE = "trixie"
# The stable suite has an emulator without vfio-user, so the emulator comes from the backports.
BACKPORTS = "trixie-backports"
EMULATOR = "qemu-system-x86"
# The cloud kernel has all drivers that the guest needs, and it is a third of the full kernel.
KERNEL = "linux-image-cloud-amd64"
SHELL = "busybox-static"
MODULES = ("vfio-pci", "vfio_iommu_type1")

# Only these parts of the packages are needed.  The rest is documentation and tools.
KEPT = (
    "usr/bin/busybox",
    "usr/bin/qemu-system-x86_64",
    "usr/lib/x86_64-linux-gnu/",
    "usr/lib64/",
    "usr/share/qemu/",
    "usr/share/seabios/",
    "boot/vmlinuz-",
    "usr/lib/modules/",
)

MARKER = "ready.json"
# Raise this number when the layout of the folder changes.  Older folders are then built anew.
LAYOUT = 1

FIRST_SLOT = 0x10
MEMORY = "512M"
# A simulated device can be slow, and the emulator gives up a request after this time.
REPLY_LIMIT_MS = 60_000
# The software emulation works on all hosts and boots in a few seconds.  Hardware help, with the name
# "kvm,kernel-irqchip=split", saves little, and some hosts offer one that cannot run a whole kernel.
DEFAULT_ACCELERATORS = ("tcg",)
STATUS_MARK = "guest-exit-status:"


class GuestError(RuntimeError):
    """Tell why the guest could not be prepared or run."""


@dataclass(frozen=True)
class Package:
    """Hold what the index says of one package."""

    name: str
    version: str
    path: str
    sha256: str
    depends: tuple[tuple[str, ...], ...]


def _names(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a dependency field into groups of alternative names, without versions."""
    groups = [group for group in text.split(",") if group.strip()]
    return tuple(tuple(re.split(r"[\s:(]", name.strip())[0] for name in group.split("|")) for group in groups)


def _package(stanza: str) -> Package | None:
    """Read one stanza of a package index."""
    fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))
    if "Package" not in fields:
        return None
    depends = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields)
    return Package(fields["Package"], fields["Version"], fields["Filename"], fields["SHA256"], _names(depends))


def _fetch(path: str, attempts: int = 3) -> bytes:
    """Fetch one file from the mirror."""
    url = f"{MIRROR}/{path}"
    for attempt in range(1, attempts + 1):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as reason:
            raise GuestError(f"cannot fetch {url}: {reason}") from reason
        except OSError as reason:
            if attempt == attempts:
                raise GuestError(f"cannot fetch {url}: {reason}") from reason
            time.sleep(attempt)
    raise AssertionError("the loop always returns or raises")


def _index(suite: str) -> dict[str, Package]:
    """Fetch the package index of a suite."""
    text = lzma.decompress(_fetch(f"dists/{suite}/main/binary-amd64/Packages.xz")).decode()
    packages = (_package(stanza) for stanza in text.split("\n\n"))
    return {package.name: package for package in packages if package}


def _closure(roots: Iterable[str], index: dict[str, Package]) -> list[Package]:
    """Return the packages and all that they depend on."""
    found: dict[str, Package] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if name not in index:
            raise GuestError(f"the package index has no package {name}")
        found[name] = index[name]
        for group in index[name].depends:
            # A name that is not in the index is a virtual one.  No library is only reached by such a name.
            waiting.extend([name for name in group if name in index][:1])
    return list(found.values())


def _kernel(index: dict[str, Package]) -> Package:
    """Return the package with the kernel, which the general kernel package depends on."""
    if KERNEL not in index:
        raise GuestError(f"the package index has no package {KERNEL}")
    for group in index[KERNEL].depends:
        if group[0].startswith("linux-image-") and group[0] in index:
            return index[group[0]]
    raise GuestError(f"the package {KERNEL} names no kernel")


def _download(package: Package) -> bytes:
    """Fetch a package and check its hash."""
    data = _fetch(package.path)
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise GuestError(f"the hash of {package.path} differs from the package index")
    return data


def _content(data: bytes, name: str) -> bytes:
    """Return the archive of files within a package."""
    place = 8
    while data.startswith(b"!<arch>\n") and place + 60 <= len(data):
        title = data[place : place + 16].decode().strip().rstrip("/")
        size = int(data[place + 48 : place + 58])
        if title.startswith("data.tar"):
            return data[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    raise GuestError(f"the package {name} has no data")


def _place(member: tarfile.TarInfo, archive: tarfile.TarFile, root: Path) -> None:
    """Unpack one file or link below a folder."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise GuestError(f"a package has the unsafe name {member.name}")
    target = root / path
    if member.isdir() or not str(path).startswith(KEPT):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.unlink(missing_ok=True)
        target.symlink_to(member.linkname)
        return
    source = archive.extractfile(member)
    if source:
        target.write_bytes(source.read())
        target.chmod(member.mode & 0o755 | stat.S_IWUSR)


def _unpack(data: bytes, name: str, root: Path) -> None:
    """Unpack the needed files of a package."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_content(data, name))) as archive:
            for member in archive:
                _place(member, archive, root)
    except tarfile.TarError as reason:
        raise GuestError(f"cannot unpack the package {name}: {reason}") from reason


def _install(root: Path) -> dict[str, str]:
    """Fetch and unpack all packages, and return their versions."""
    stable = _index(STABLE)
    everything = stable | _index(BACKPORTS)
    # The stable kernel is smaller than the backported one, and either of them does.
    packages = [*_closure([EMULATOR], everything), stable[SHELL], _kernel(stable)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        for package, data in zip(packages, pool.map(_download, packages), strict=True):
            _unpack(data, package.name, root)
    return {package.name: package.version for package in packages}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, so that two tests do not build the same folder."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_ready(marker: Path) -> bool:
    """Tell whether a folder is complete."""
    try:
        return bool(json.loads(marker.read_text())["layout"] == LAYOUT)
    except (OSError, ValueError, KeyError):
        return False


def prepare(folder: Path) -> Guest:
    """Fetch and unpack the emulator, the kernel and the shell into a folder, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    marker = folder / MARKER
    with _locked(folder / "lock"):
        if not _is_ready(marker):
            marker.unlink(missing_ok=True)
            shutil.rmtree(folder / "root", ignore_errors=True)
            versions = _install(folder / "root")
            Guest(folder).check()
            # The marker comes last, so an interrupted run starts anew.
            marker.write_text(json.dumps({"layout": LAYOUT, "versions": versions}, indent=1) + "\n")
    return Guest(folder)


@dataclass
class _Archive:
    """Build an initial file system in the "newc" form of cpio."""

    data: bytearray = field(default_factory=bytearray)
    names: set[str] = field(default_factory=set)

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        """Add one entry, and the folders above it."""
        name = name.strip("/")
        if name in self.names:
            return
        parent = str(PurePosixPath(name).parent)
        if parent != ".":
            self.add(parent, stat.S_IFDIR | 0o755)
        self.names.add(name)
        self._entry(name, mode, content)

    def _entry(self, name: str, mode: int, content: bytes) -> None:
        """Write one entry, its header padded to four bytes like its content."""
        title = name.encode() + b"\0"
        numbers = (len(self.names), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(title), 0)
        self.data += b"070701" + "".join(f"{number:08x}" for number in numbers).encode() + title
        self.data += bytes(-len(self.data) % 4)
        self.data += content + bytes(-len(content) % 4)

    def add_program(self, name: str, path: Path) -> None:
        """Add a file, and the shared libraries if it is a program that needs some."""
        content = path.read_bytes()
        self.add(name, stat.S_IFREG | (0o755 if os.access(path, os.X_OK) else 0o644), content)
        if content.startswith(b"\x7fELF"):
            for library in _libraries(path):
                self.add(library, stat.S_IFREG | 0o755, Path(library).read_bytes())

    def finish(self) -> bytes:
        """Add the last entry and return the archive."""
        self._entry("TRAILER!!!", 0, b"")
        return bytes(self.data)


def _libraries(program: Path) -> list[str]:
    """Return the paths of the shared libraries and the loader of a program."""
    # The program can be a static one, for which this command fails and prints no paths.
    answer = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if missing := re.findall(r"^\s*(\S+) => not found", answer.stdout, re.MULTILINE):
        raise GuestError(f"{program} needs libraries that are not here: {', '.join(missing)}")
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", answer.stdout, re.MULTILINE)


def _module_needs(content: bytes) -> list[str]:
    """Return the names of the modules that a kernel module needs."""
    match = re.search(rb"\0depends=([^\0]*)\0", content)
    return [name for name in match.group(1).decode().split(",") if name] if match else []


def _load_order(names: Iterable[str], read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return kernel modules in the order in which the kernel can load them."""
    order: dict[str, bytes] = {}
    for name in names:
        content = read(name)
        order |= {key: value for key, value in _load_order(_module_needs(content), read).items() if key not in order}
        order.setdefault(name, content)
    return order


INIT = """\
#!/bin/busybox sh
# Prepare the guest, run the program once, report its status and stop the guest.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /tmp /run
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b mkdir -p /dev/shm
$b mount -t tmpfs shm /dev/shm
$b ip link set lo up
$b --install -s /bin
export PATH=/bin
status=125
prepare() {
    for module in @modules@; do
        insmod /modules/$module.ko || return 1
    done
    for device in $GUEST_DEVICES; do
        echo vfio-pci >/sys/bus/pci/devices/$device/driver_override || return 1
        echo $device >/sys/bus/pci/drivers_probe || return 1
        [ -e /sys/bus/pci/devices/$device/iommu_group ] || return 1
        [ -e /sys/bus/pci/drivers/vfio-pci/$device ] || return 1
    done
}
export GUEST_DEVICES="@devices@"
# The limit ends a guest whose host process is gone.
if prepare; then timeout -s KILL @limit@ @command@; status=$?; else echo "guest setup failed"; fi
echo
echo "@mark@ $status"
poweroff -f
"""


@dataclass(frozen=True)
class Guest:
    """Run programs in a guest whose files lie in a prepared folder."""

    folder: Path

    @property
    def root(self) -> Path:
        """Return the folder with the unpacked packages."""
        return self.folder / "root"

    @staticmethod
    def address(index: int) -> str:
        """Return the PCI address in the guest of the device with the given index."""
        return f"0000:00:{FIRST_SLOT + index:02x}.0"

    def check(self) -> None:
        """Check that the emulator starts and has the device, and that the kernel is there."""
        answer = subprocess.run(
            [*self._emulator(), "-device", "vfio-user-pci,help"],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode or "socket" not in answer.stdout:
            raise GuestError(f"the emulator has no vfio-user device: {answer.stderr or answer.stdout}")
        self._one("boot", "vmlinuz-*")
        for name in MODULES:
            self._module(name)

    def run(
        self,
        program: Path,
        arguments: list[str],
        sockets: list[Path],
        timeout_s: float,
        files: dict[str, Path] | None = None,
        accelerators: tuple[str, ...] = DEFAULT_ACCELERATORS,
    ) -> tuple[int, str]:
        """Boot the guest with one device per socket, run the program, and return its status and the console text.

        The program finds its devices in the variable GUEST_DEVICES.  Each of them is bound to vfio-pci.  The program
        and the files are copied with the shared libraries that they need.  The keys of ``files`` are paths in the
        guest.  The servers must listen already.
        """
        with tempfile.TemporaryDirectory(prefix="guest-") as name:
            image = Path(name) / "initrd"
            image.write_bytes(self._image(program, arguments, len(sockets), timeout_s, files or {}))
            console = self._boot(self._command(image, sockets, accelerators), timeout_s)
        if not (match := re.search(rf"^{STATUS_MARK} (\d+)$", console, re.MULTILINE)):
            raise GuestError(f"the guest stopped without a status; its console:\n{console}")
        return int(match.group(1)), console

    def _boot(self, command: list[str], timeout_s: float) -> str:
        """Run the emulator until it ends, and return the console text."""
        process = subprocess.Popen(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            text = output.decode(errors="replace").replace("\r", "")
            raise GuestError(f"the guest did not end within {timeout_s} s; its console:\n{text}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return output.decode(errors="replace").replace("\r", "")

    def _environment(self) -> dict[str, str]:
        """Return the environment of the emulator, which must not look for modules on the host."""
        return os.environ | {"QEMU_MODULE_DIR": str(self.root / "usr/lib/x86_64-linux-gnu/qemu")}

    def _emulator(self) -> list[str]:
        """Return the start of the command line.

        The loader of the folder starts the emulator, because the libraries of the host can be too old for it.
        """
        root = self.root
        return [
            str(root / "usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path",
            str(root / "usr/lib/x86_64-linux-gnu"),
            str(root / "usr/bin/qemu-system-x86_64"),
            *("-L", str(root / "usr/share/qemu")),
            *("-L", str(root / "usr/share/seabios")),
        ]

    def _command(self, image: Path, sockets: list[Path], accelerators: tuple[str, ...]) -> list[str]:
        """Return the command line of the emulator."""
        command = [
            *self._emulator(),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
            *(part for accelerator in accelerators for part in ("-accel", accelerator)),
            *("-cpu", "max", "-m", MEMORY),
            # The device reaches the memory of the guest only if it is a shared file.
            *("-machine", "q35,memory-backend=memory"),
            *("-object", f"memory-backend-memfd,id=memory,size={MEMORY},share=on"),
            # The caching mode makes the emulated IOMMU report each new mapping to the device.
            *("-device", "intel-iommu,intremap=on,caching-mode=on"),
            *("-kernel", str(self._one("boot", "vmlinuz-*")), "-initrd", str(image)),
            *("-append", "console=ttyS0 intel_iommu=on quiet panic=-1"),
        ]
        for index, path in enumerate(sockets):
            device = {
                "driver": "vfio-user-pci",
                "socket": {"type": "unix", "path": str(path.resolve())},
                "addr": f"{FIRST_SLOT + index:x}",
                "rombar": 0,
                "x-msg-timeout": REPLY_LIMIT_MS,
            }
            command += ["-device", json.dumps(device)]
        return command

    def _image(
        self, program: Path, arguments: list[str], devices: int, timeout_s: float, files: dict[str, Path]
    ) -> bytes:
        """Build the initial file system of the guest."""
        modules = _load_order(MODULES, self._module)
        values = {
            "modules": " ".join(modules),
            "devices": " ".join(self.address(index) for index in range(devices)),
            "limit": str(max(1, round(timeout_s))),
            "command": shlex.join(["/program", *arguments]),
            "mark": STATUS_MARK,
        }
        archive = _Archive()
        archive.add("init", stat.S_IFREG | 0o755, re.sub("@([a-z]+)@", lambda key: values[key[1]], INIT).encode())
        archive.add("bin/busybox", stat.S_IFREG | 0o755, (self.root / "usr/bin/busybox").read_bytes())
        for name, content in modules.items():
            archive.add(f"modules/{name}.ko", stat.S_IFREG | 0o644, content)
        archive.add_program("program", program)
        for target, path in files.items():
            archive.add_program(target, path)
        return archive.finish()

    def _one(self, folder: str, pattern: str) -> Path:
        """Find the one file of a folder that has the given form of name."""
        found = sorted((self.root / folder).rglob(pattern))
        if len(found) != 1:
            raise GuestError(f"{self.root / folder} has {len(found)} files {pattern}")
        return found[0]

    def _module(self, name: str) -> bytes:
        """Return the plain content of a kernel module."""
        # A name can have either sign in the file and in the list of needs.
        path = self._one("usr/lib/modules", re.sub("[-_]", "[-_]", name) + ".ko*")
        content = path.read_bytes()
        return lzma.decompress(content) if path.suffix == ".xz" else content
