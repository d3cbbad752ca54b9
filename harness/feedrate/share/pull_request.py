"""Files become a pull request: with git's plumbing and GitHub's ``gh``, and without touching anybody's working tree.

Blobs, tree and commit are written beside the checkout's own (a temporary index; no branch, stash or hook), pushed to
a branch of the repository or of the user's fork, and proposed. The commit carries the GitHub account's name and its
no-reply address, not the name and address that git is configured with: those were not asked for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = "results/"
"""Below the repository's root."""
_FETCHED = "refs/feedrate/base"
"""Where the base branch lies while it is looked at; nobody's branch."""
_TIMEOUT_S = 300
_WRITERS = ("ADMIN", "MAINTAIN", "WRITE")
_AS_GH = ("-c", "credential.helper=", "-c", "credential.helper=!gh auth git-credential")


class Unable(Exception):
    """Why no pull request can be opened from here, in a clause; what was to be proposed is still there."""


@dataclass(frozen=True, slots=True)
class Change:
    """Files to be added, and the title and text of their pull request."""

    files: Mapping[str, bytes]
    """Path below the repository's root to content; none of them may be there already."""
    branch: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on GitHub."""

    name: str
    """OWNER/NAME."""
    address: str
    """URL to fetch from and push to."""
    branch: str
    """Its default branch."""
    writable: bool
    """Whether the account may push to it."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a change gets from a checkout into a pull request."""

    checkout: Path
    login: str
    """Of the account that will open it."""
    base: Repository
    head: Repository | None
    """Where the branch is pushed; None is a fork that has yet to be made."""


def route(checkout: Path) -> Route:
    """Find out whether and how a pull request can be opened. Reads only."""
    for tool, name in (("git", "git"), ("gh", "gh, GitHub's command line,")):
        if not shutil.which(tool):
            raise Unable(f"{name} is not installed")
    if not _git(checkout, "remote").strip():
        raise Unable("this checkout has no remote")
    login = _gh(checkout, "api", "user", "--jq", ".login").strip()
    here = _view(checkout, "nameWithOwner,parent")
    parent = here["parent"]
    base = _repository(checkout, f"{parent['owner']['login']}/{parent['name']}" if parent else here["nameWithOwner"])
    if base.writable:
        return Route(checkout, login, base, base)
    try:
        own = _repository(checkout, here["nameWithOwner"] if parent else _fork_name(login, base))
    except Unable:  # no fork yet
        return Route(checkout, login, base, None)
    return Route(checkout, login, base, own if own.writable else None)


def _fork_name(login: str, base: Repository) -> str:
    return f"{login}/{base.name.partition('/')[2]}"


def _view(checkout: Path, fields: str, *name: str) -> dict[str, Any]:
    """Ask ``gh`` for fields of a repository; of the checkout's own without a name."""
    try:
        values = json.loads(_gh(checkout, "repo", "view", *name, "--json", fields))
    except ValueError as error:
        raise Unable("gh repo view gave no JSON") from error
    if missing := [field for field in fields.split(",") if not isinstance(values, dict) or field not in values]:
        raise Unable(f"gh repo view says nothing of {', '.join(missing)}")
    return dict(values)


def _repository(checkout: Path, name: str) -> Repository:
    values = _view(checkout, "nameWithOwner,url,defaultBranchRef,viewerPermission", name)
    branch = (values["defaultBranchRef"] or {}).get("name") or "main"
    return Repository(values["nameWithOwner"], values["url"], branch, values["viewerPermission"] in _WRITERS)


@contextmanager
def fetched(way: Route) -> Iterator[str]:
    """Fetch the base branch for as long as it is needed, and give its commit."""
    wanted = f"+refs/heads/{way.base.branch}:{_FETCHED}"
    _git(way.checkout, *_AS_GH, "fetch", "-q", "--no-tags", "--no-write-fetch-head", way.base.address, wanted)
    try:
        yield _git(way.checkout, "rev-parse", _FETCHED).strip()
    finally:
        _git(way.checkout, "update-ref", "-d", _FETCHED)


def last_seen(checkout: Path) -> str | None:
    """Give the commit of the base branch that was fetched last, without asking anybody; None where it is not known."""
    for name in ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"):
        try:
            return _git(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
        except Unable:
            continue
    return None


def same(checkout: Path, commit: str, paths: Collection[str], contents: Iterable[bytes]) -> list[str]:
    """List the files below ``results/`` that a commit has under one of the paths, or with one of the contents."""
    blobs = {_hash(checkout, data) for data in contents}
    there = []
    for line in _git(checkout, "ls-tree", "-r", "-z", "--full-tree", commit, RESULTS).split("\0"):
        facts, _, path = line.partition("\t")
        if path and (path in paths or facts.split()[2] in blobs):
            there.append(path)
    return there


def _hash(checkout: Path, data: bytes, *more: str) -> str:
    return _git(checkout, "hash-object", *more, "--stdin", given=data).strip()


def waiting(way: Route, branch: str) -> str | None:
    """Give the address of the open pull request of a branch; a branch without one is left over and means nothing."""
    if not way.head:
        return None
    where = ("--repo", way.base.name, "--head", branch, "--state", "open")
    output = _gh(way.checkout, "pr", "list", *where, "--json", "url,headRepositoryOwner")
    try:  # gh goes by the branch's name alone, which a stranger's fork may have as well
        owners = {(each["headRepositoryOwner"] or {}).get("login"): each["url"] for each in json.loads(output)}
        return owners.get(way.head.name.partition("/")[0])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unable("gh pr list gave no list of pull requests") from error


def propose(way: Route, commit: str, change: Change) -> str:
    """Open a pull request on top of a commit of the base branch, and give its address."""
    made = _commit(way, commit, change)
    if not (head := way.head):
        _gh(way.checkout, "repo", "fork", way.base.name, "--clone=false")
        head = _repository(way.checkout, _fork_name(way.login, way.base))
    _git(way.checkout, *_AS_GH, "push", "-q", "--no-verify", head.address, f"+{made}:refs/heads/{change.branch}")
    branch = change.branch if head.name == way.base.name else f"{head.name.partition('/')[0]}:{change.branch}"
    where = ("--repo", way.base.name, "--base", way.base.branch, "--head", branch)
    output = _gh(way.checkout, "pr", "create", *where, "--title", change.title, "--body-file", "-", given=change.body)
    return output.strip().splitlines()[-1] if output.strip() else f"{way.base.name}, branch {branch}"


def _commit(way: Route, parent: str, change: Change) -> str:
    """Write a commit on top of another that adds files and changes nothing else."""
    who = {"NAME": way.login, "EMAIL": f"{way.login}@users.noreply.github.com"}
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        more = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        more |= {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
        _git(way.checkout, "read-tree", parent, more=more)
        for path, data in change.files.items():
            entry = f"100644,{_hash(way.checkout, data, '-w')},{path}"
            _git(way.checkout, "update-index", "--add", "--cacheinfo", entry, more=more)
        tree = _git(way.checkout, "write-tree", more=more).strip()
        message = f"{change.title}\n".encode()
        return _git(way.checkout, "commit-tree", tree, "-p", parent, "-F", "-", given=message, more=more).strip()


def git(checkout: Path, *words: str, given: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
    """Run git on a checkout, whatever repository the caller's own variables name."""
    return _run(["git", *words], checkout, given, more or {})


def _git(checkout: Path, *words: str, given: bytes = b"", more: Mapping[str, str] | None = None) -> str:
    return git(checkout, *words, given=given, more=more).decode(errors="surrogateescape")


def _gh(checkout: Path, *words: str, given: str = "") -> str:
    own = {"GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"}
    return _run(["gh", *words], checkout, given.encode(), own).decode(errors="surrogateescape")


def _run(command: list[str], checkout: Path, given: bytes, more: Mapping[str, str]) -> bytes:
    """Run a tool that asks nothing; git's own variables of whoever called do not reach it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", **more}
    name = " ".join([word for word in command if not word.startswith("-") and "credential" not in word][:3])
    try:
        done = subprocess.run(
            command, cwd=checkout, input=given, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{name}: {error}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unable(f"{name}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return done.stdout
