from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fedkit import extras

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")
EXTRAS = PROJECT["project"]["optional-dependencies"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    return [Requirement(x.rstrip("\\ ")) for x in lines if x[:1] not in ("", " ", "#")]


def locked_for(python: str, system: str = "linux") -> dict[str, str]:
    """Versions that the lock gives on a platform."""
    place = {
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": system,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
        "platform_machine": {"linux": "x86_64", "darwin": "arm64"}[system],
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    found: dict[str, str] = {}
    for line in locked():
        if line.marker is None or line.marker.evaluate(place):
            assert canonical(line.name) not in found, f"{line.name} is locked twice for {place}"
            found[canonical(line.name)] = str(line.specifier).removeprefix("==")
    return found


def declared() -> list[Requirement]:
    lines = list(PROJECT["project"]["dependencies"])
    for extra in EXTRAS.values():
        lines += [line for line in extra if not line.startswith("fedkit-contributions[")]
    return [Requirement(line) for line in lines]


def tracked() -> list[Path]:
    """Every text file that is, or could be, committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in names.splitlines()]
    return [f for f in files if f.is_file() and f.suffix not in (".png", ".gz", ".npz", ".zip")]


# -------------------------------------------------------------------------- environment


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_lock_meets_every_declared_requirement(python: str, system: str) -> None:
    versions = locked_for(python, system)
    for wanted in declared():
        marker = {"python_version": python, "python_full_version": f"{python}.7"}
        if wanted.marker is not None and not wanted.marker.evaluate(marker):
            continue
        name = canonical(wanted.name)
        assert name in versions, f"{name} is not in requirements.lock: run 'make lock'"
        assert wanted.specifier.contains(versions[name]), (name, versions[name])


def test_the_lock_is_only_names_and_versions() -> None:
    for line in locked():
        assert re.fullmatch(r"==[\w.!+]+", str(line.specifier)), f"{line} is not pinned"


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-uv.txt"])
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    pins = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert pins
    for pin in pins:
        assert "--hash=sha256:" in pin, f"{pin.splitlines()[0]} has no hash: run 'make lock'"
    assert "://" not in text


def test_setup_installs_what_has_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    setup = makefile.split("\nsetup:")[1].split("\n\n")[0]
    assert "--require-hashes -r requirements-uv.txt" in setup
    assert re.search(r"uv pip sync .*--require-hashes .*requirements\.lock", setup)


def test_the_extras_are_those_that_the_readme_names() -> None:
    assert re.findall(r"`(\w+)`", re.findall(r"Extras: (.*)\.", README)[0]) == list(EXTRAS)
    (everything,) = re.findall(r"fedkit-contributions\[(.*)\]", EXTRAS["all"][0])
    assert set(everything.split(",")) == set(EXTRAS) - {"all"}


def test_the_conda_environment_is_the_same_environment() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    python, *rest = environment["dependencies"]
    assert rest == ["pip", {"pip": ["-r requirements.lock"]}]
    assert "pip install --no-deps -e ." in (ROOT / "postBuild").read_text("utf-8")
    assert "pip install --no-deps -e ." in README
    version = python.removeprefix("python=")
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(version)
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert f'"{version}"' in workflow


def test_what_is_installed_is_what_is_locked() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.platform not in ("linux", "darwin") or python not in ("3.11", "3.12", "3.13"):
        pytest.skip("the lock is checked on Linux and macOS with Python 3.11 to 3.13")
    other = {}
    for name, version in locked_for(python, sys.platform).items():
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # an environment may hold fewer extras
        if there.partition("+")[0] != version:
            other[name] = (there, version)
    assert not other, f"installed and locked differ: {other}; run 'make setup' or 'make lock'"


def test_the_core_imports_with_numpy_scipy_and_torch_alone() -> None:
    rooms = "games estimators learning federated methods"
    names = [
        ".".join(p.relative_to(ROOT / "fedkit").with_suffix("").parts)
        for room in rooms.split()
        for p in (ROOT / "fedkit" / room).glob("[a-z]*.py")
    ]
    lines = [
        "import sys",
        "class Refuse:",
        "    def find_spec(self, name, path=None, target=None):",
        "        if name.partition('.')[0] in refused: raise ImportError(name)",
        "refused = set('pandas typer tqdm yaml torchvision sklearn medmnist matplotlib PIL "
        "jupytext papermill nbformat psutil'.split())",
        "sys.meta_path.insert(0, Refuse())",
        "import numpy as np, fedkit as fk",
        *[f"import fedkit.{name}" for name in names],
        re.findall(r"```python\n(.*?)```", README, re.S)[1],  # values and their intervals
    ]
    command = [sys.executable, "-W", "error", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "400 evaluations" in done.stdout
    values = [float(v) for v in re.findall(r"(?:Ada|Bo|Cy)\s+([\d.]+)", done.stdout)]
    assert sum(values) == pytest.approx(85 - 10)  # efficiency: v(N) - v(empty)


def test_what_is_missing_is_asked_for_by_a_command_that_works() -> None:
    source = "".join(p.read_text("utf-8") for p in (ROOT / "fedkit").rglob("*.py"))
    modules = {m.partition(".")[0] for m in re.findall(r'\bneed\("([\w.]+)"', source)}
    assert "pandas" in modules
    packages = {canonical(extras.PACKAGES.get(m, m)) for m in modules}
    assert packages <= {canonical(line.name) for line in locked()}
    with pytest.raises(
        ImportError, match=r"pip install scikit-learn \(or, .* pip install '.\[run\]"
    ):
        extras.need("sklearn.nothing", "run")


# ------------------------------------------------------------------------------- README


def test_the_examples_of_the_readme_run_on_their_own() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3  # the second is run without any extra, above
    for block in blocks:
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
    for block, words in (
        (blocks[0], ["by accuracy, exact: 8 evaluations", "Ada", "Bo", "Cy"]),
        (blocks[2], ["symmetry", "p (Holm)"]),
    ):
        command = [sys.executable, "-W", "error", "-c", block]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert all(word in done.stdout for word in words), done.stdout


def dry_run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Try the README's line for processors alone, in an environment that holds nothing."""
    (line,) = re.findall(r"^uv (pip install --torch-backend .*) /path/to/this/folder", README, re.M)
    uv = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    assert uv is not None, "make setup brings it"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "new"], check=True)
    python = folder / "new" / "bin" / "python"
    command = [uv, *line.split(), "--dry-run", *more, "--python", python, ROOT]
    env = os.environ | {"UV_HTTP_RETRIES": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_the_install_for_processors_alone_is_one_line_that_uv_understands(tmp_path: Path) -> None:
    line = r"uv pip install --torch-backend cpu \S+"
    (ours,) = re.findall(line, README)
    (page,) = re.findall(line, (ROOT / "book" / "how-to-read.md").read_text("utf-8"))
    assert ours.split()[:-1] == page.split()[:-1]
    done = dry_run(tmp_path, "--offline")
    assert done.returncode in (0, 1), done.stderr  # 2 says that the line is wrong
    assert done.returncode == 0 or "network was disabled" in done.stderr, done.stderr


@pytest.mark.weekly
def test_the_install_for_processors_alone_brings_no_package_of_a_gpu(tmp_path: Path) -> None:
    done = dry_run(tmp_path)
    if "Failed to fetch" in done.stderr:
        pytest.skip("the package index of torch is not reached from here")
    assert done.returncode == 0, done.stderr
    assert "+cpu" in re.findall(r"\+ torch==(\S+)", done.stderr)[0]
    assert "nvidia" not in done.stderr
    assert "triton" not in done.stderr


def test_every_make_target_that_is_mentioned_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    pages = [README, (ROOT / "CONTRIBUTING.md").read_text("utf-8")]
    pages += [p.read_text("utf-8") for p in (ROOT / "book").glob("*.md")]
    mentioned = {
        word
        for page in pages
        for block in re.findall(r"```bash\n(.*?)```|`(make [^`]*)`", page, flags=re.DOTALL)
        for line in "\n".join(block).splitlines()
        if line.strip().startswith("make ")
        for word in line.split("#")[0].split("&&")[0].split()[1:]
        if "=" not in word and '"' not in word
    }
    assert mentioned <= targets, mentioned - targets
    assert {"book", "test"} <= mentioned
    if shutil.which("make") is not None:  # alone it prints them all
        done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
        for target in re.findall(r"^([a-z-]+):.*##", makefile, flags=re.MULTILINE):
            assert f"make {target}" in done.stdout


def test_every_command_and_option_that_is_mentioned_exists() -> None:
    typer = pytest.importorskip("typer")
    from fedkit.__main__ import application

    whole = typer.main.get_command(application())
    pages = [README, *(page.read_text("utf-8") for page in (ROOT / "book").glob("*.md"))]
    shown = re.findall(r"```bash\n(.*?)```|`(fedkit [a-z][^`]*)`", "\n".join(pages), re.DOTALL)
    text = "\n".join(map("\n".join, shown)) + "\n".join(
        path.read_text("utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")
    )
    begun = r"^\s*(?:- run: )?(?:[A-Z_]+=\S+ )?(?:\S*/)?"  # a step of a workflow, or a variable
    lines = re.findall(rf"{begun}fedkit ([a-z][^\n#|;&]*)", text, re.MULTILINE)
    assert len(lines) > 20
    for line in lines:
        place = whole
        for word in line.split():
            if hasattr(place, "commands"):
                assert word in place.commands, line
                place = place.commands[word]
            elif word.startswith("--"):
                assert any(word in known.opts for known in place.params), (line, word)


def test_no_result_is_typed_on_the_front_page() -> None:
    text = (ROOT / "book" / "intro.md").read_text("utf-8")
    text = re.sub(r"```(?:python|text)\n.*?```", " ", text, flags=re.DOTALL)  # run below
    text = re.sub(r"`[^`]*`|\"[^\"]*\"|95% intervals|:width: \d+%", " ", text)
    typed = re.findall(r".*(?<![\w^.])\d+(?:\.\d+)?(?: ?%| points|\.\d).*", text)
    assert not typed, f"glue these numbers: {typed}"


def test_the_front_page_is_short_and_its_program_prints_what_it_says(capsys) -> None:
    text = (ROOT / "book" / "intro.md").read_text("utf-8")
    program, printed = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0]
                        for kind in ("python", "text"))  # fmt: skip
    exec(program, {})
    assert capsys.readouterr().out == printed
    assert len([line for line in program.splitlines() if line]) <= 10
    prose = re.sub(r"```(?:python|text)\n.*?```", " ", text, flags=re.DOTALL)
    numbers = re.findall(r"\{glue:text\}`[^`]*`", prose)
    assert len(numbers) <= 6
    assert len(re.findall(r"[A-Za-z][\w'-]*", re.sub(r"\{glue:text\}`[^`]*`", "", prose))) < 450


def test_links_of_the_readme_lead_somewhere() -> None:
    for text, target in re.findall(r"!?\[([^\]]*)\]\(([^)#]+)\)", README):
        assert text.strip(), f"{target} has no text"
        assert target.startswith("https://") or (ROOT / target).exists(), target


# ---------------------------------------------------------------------- licences, release


def test_licences_and_citation() -> None:
    assert (ROOT / "LICENSE").read_text("utf-8").startswith("MIT License")
    assert PROJECT["project"]["license"] == "MIT"
    assert "licenses/by/4.0/legalcode" in (ROOT / "LICENSE-CONTENT").read_text("utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = PROJECT["project"]["version"]
    assert citation["version"] == version == metadata.version("fedkit-contributions")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{version}] - {citation['date-released']}" in changelog


def test_one_script_is_the_continuous_integration() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    for stage in ("make lint", "make test", "make book", "make check-book", "../shared/data"):
        assert stage in script.read_text("utf-8")
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        assert ".ci/run" in workflow.read_text("utf-8")


def test_the_totals_of_several_runs_are_added_up(tmp_path: Path) -> None:
    def total(*names: str) -> str:
        command = [sys.executable, ROOT / ".ci/totals.py", *(tmp_path / name for name in names)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "a").write_text("x\n==== 3 passed, 2 skipped, 1 warning in 3.20s ====\n", "utf-8")
    (tmp_path / "b").write_text("1 failed, 10 passed, 2 warnings, 1 error in 0.80s\n", "utf-8")
    assert total("a", "b") == "1 failed, 13 passed, 2 skipped, 3 warnings, 1 error in 4.00s"
    assert total("nothing") == "no tests ran in 0.00s"


def test_no_local_paths_and_no_package_index() -> None:
    words = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "py" + "pi.org", "index" + "-url"]
    words += ["files.python" + "hosted", "/tm" + "p/"]
    allowed = {("Makefile", "index" + "-url")}  # the switch that keeps an address out of the lock
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8", errors="ignore")
        found += [(name, word) for word in words if word in text and (name, word) not in allowed]
    assert not found


def test_nothing_large_is_committed() -> None:
    large = {p.name: p.stat().st_size for p in tracked() if p.stat().st_size > 400_000}
    assert not large
