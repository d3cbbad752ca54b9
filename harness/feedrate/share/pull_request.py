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
    """Files to be added, and what the pull request says of them."""

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

    @property
    def owner(self) -> str:
        """The account or organisation that it belongs to."""
        return self.name.partition("/")[0]


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
    """Find out whether and how a pull request can be opened. Reads only.

    Raises:
        Unable: git, ``gh``, a login or a remote is missing.
    """
    for tool, name in (("git", "git"), ("gh", "gh, GitHub's command line,")):
        if not shutil.which(tool):
            raise Unable(f"{name} is not installed")
    if not _git(checkout, "remote").strip():
        raise Unable("this checkout has no remote")
    login = _gh(checkout, "api", "user", "--jq", ".login").strip()
    here = _told(checkout, "nameWithOwner,parent")
    parent = here["parent"]
    base = _repository(checkout, f"{parent['owner']['login']}/{parent['name']}" if parent else here["nameWithOwner"])
    if base.writable:
        return Route(checkout, login, base, base)
    name = here["nameWithOwner"] if parent else f"{login}/{base.name.partition('/')[2]}"
    try:
        own = _repository(checkout, name)
    except Unable:  # no fork yet
        return Route(checkout, login, base, None)
    return Route(checkout, login, base, own if own.writable else None)


def _told(checkout: Path, fields: str, *name: str) -> dict[str, Any]:
    """What ``gh`` says of a repository; of the checkout's own without a name."""
    try:
        found = json.loads(_gh(checkout, "repo", "view", *name, "--json", fields))
    except ValueError as error:
        raise Unable("gh repo view gave no JSON") from error
    if missing := [field for field in fields.split(",") if not isinstance(found, dict) or field not in found]:
        raise Unable(f"gh repo view says nothing of {', '.join(missing)}")
    return dict(found)


def _repository(checkout: Path, name: str) -> Repository:
    told = _told(checkout, "nameWithOwner,url,defaultBranchRef,viewerPermission", name)
    branch = (told["defaultBranchRef"] or {}).get("name") or "main"
    return Repository(told["nameWithOwner"], told["url"], branch, told["viewerPermission"] in _WRITERS)


@contextmanager
def fetched(found: Route) -> Iterator[str]:
    """Fetch the base branch for as long as it is needed.

    Raises:
        Unable: it cannot be fetched.
    """
    wanted = f"+refs/heads/{found.base.branch}:{_FETCHED}"
    _git(found.checkout, *_AS_GH, "fetch", "-q", "--no-tags", "--no-write-fetch-head", found.base.address, wanted)
    try:
        yield _git(found.checkout, "rev-parse", _FETCHED).strip()
    finally:
        _git(found.checkout, "update-ref", "-d", _FETCHED)


def last_seen(checkout: Path) -> str | None:
    """Give the commit of the base branch that was fetched last, without asking anybody; None where it is not known."""
    for name in ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"):
        try:
            return _git(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
        except Unable:
            continue
    return None


def same(checkout: Path, commit: str, paths: Collection[str], contents: Iterable[bytes]) -> list[str]:
    """List what a commit has of some files already, by their place or by their content."""
    blobs = {_hashed(checkout, data) for data in contents}
    return [path for path, blob in _tree(checkout, commit) if path in paths or blob in blobs]


def _tree(checkout: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Path and blob of every file below ``results/``."""
    for line in _git(checkout, "ls-tree", "-r", "-z", "--full-tree", commit, RESULTS).split("\0"):
        facts, _, path = line.partition("\t")
        if path:
            yield path, facts.split()[2]


def _hashed(checkout: Path, data: bytes, *more: str) -> str:
    return _git(checkout, "hash-object", *more, "--stdin", given=data).strip()


def waiting(found: Route, branch: str) -> str | None:
    """Give the address of the open pull request of a branch; a branch without one is left over and means nothing.

    Raises:
        Unable: the repository does not answer.
    """
    if not found.head:
        return None
    where = ("--repo", found.base.name, "--head", branch, "--state", "open")
    said = _gh(found.checkout, "pr", "list", *where, "--json", "url,headRepositoryOwner")
    try:  # gh goes by the branch's name alone, which a stranger's fork may have as well
        owners = {(each["headRepositoryOwner"] or {}).get("login"): each["url"] for each in json.loads(said)}
        return owners.get(found.head.owner)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unable("gh pr list gave no list of pull requests") from error


def propose(found: Route, commit: str, change: Change) -> str:
    """Open a pull request.

    Raises:
        Unable: a step failed; what was pushed before stays as a branch, which the next attempt replaces.
    """
    made = _committed(found, commit, change)
    head = found.head or _forked(found)
    _git(found.checkout, *_AS_GH, "push", "-q", "--no-verify", head.address, f"+{made}:refs/heads/{change.branch}")
    named = change.branch if head.name == found.base.name else f"{head.owner}:{change.branch}"
    where = ("--repo", found.base.name, "--base", found.base.branch, "--head", named)
    said = _gh(found.checkout, "pr", "create", *where, "--title", change.title, "--body-file", "-", given=change.body)
    return said.strip().splitlines()[-1] if said.strip() else f"{found.base.name}, branch {named}"


def _forked(found: Route) -> Repository:
    _gh(found.checkout, "repo", "fork", found.base.name, "--clone=false")
    return _repository(found.checkout, f"{found.login}/{found.base.name.partition('/')[2]}")


def _committed(found: Route, commit: str, change: Change) -> str:
    """Write a commit on top of another that adds files and changes nothing else."""
    who = {"NAME": found.login, "EMAIL": f"{found.login}@users.noreply.github.com"}
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        more = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        more |= {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
        _git(found.checkout, "read-tree", commit, more=more)
        for path, data in change.files.items():
            entry = f"100644,{_hashed(found.checkout, data, '-w')},{path}"
            _git(found.checkout, "update-index", "--add", "--cacheinfo", entry, more=more)
        tree = _git(found.checkout, "write-tree", more=more).strip()
        message = f"{change.title}\n".encode()
        return _git(found.checkout, "commit-tree", tree, "-p", commit, "-F", "-", given=message, more=more).strip()


def git(checkout: Path, *words: str, given: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
    """Run git on a checkout, whatever repository the caller's own variables name.

    Raises:
        Unable: it is missing, hangs or fails.
    """
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
    said = " ".join([word for word in command if not word.startswith("-") and "credential" not in word][:3])
    try:
        done = subprocess.run(
            command, cwd=checkout, input=given, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{said}: {error}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unable(f"{said}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return done.stdout
