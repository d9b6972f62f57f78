"""A hub in a thread: as much of its protocol as it takes to make a repository, put files into it and get them."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """repos: name -> {"private", "commits": [(id, {file: bytes})]}. asked: (method, path, token) of every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.posted: list[bytes] = []
        self.refuses: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo: str, changes: dict[str, bytes], private: bool = False) -> str:
        """Put files into a repository; the id of the commit."""
        entry = self.repos.setdefault(repo, {"private": private, "commits": []})
        whole = (dict(entry["commits"][-1][1]) if entry["commits"] else {}) | changes
        name = hashlib.sha1(f"{repo}{len(entry['commits'])}".encode()).hexdigest()
        entry["commits"].append((name, whole))
        return name

    def newest(self, repo: str) -> dict[str, bytes]:
        found: dict[str, bytes] = self.repos[repo]["commits"][-1][1]
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self._body()
        path = unquote(urlsplit(self.path).path)
        if self.server.refuses:
            return self._json({"error": "no"}, self.server.refuses)
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if "/preupload/" in path:
            files = json.loads(body)["files"]
            modes = [("lfs" if one["path"].endswith(".safetensors") else "regular") for one in files]
            listed = [
                {"path": one["path"], "uploadMode": mode, "shouldIgnore": False}
                for one, mode in zip(files, modes, strict=True)
            ]
            return self._json({"files": listed})
        if path.endswith(".git/info/lfs/objects/batch"):
            made = [
                one | {"actions": {"upload": {"href": f"{self.server.url}/blob/{one['oid']}"}}}
                for one in _objects(body)
            ]
            return self._json({"transfer": "basic", "objects": made})
        if "/commit/" in path:
            return self._commit(path.partition("/api/models/")[2].partition("/commit/")[0], body)
        return self._json({"error": "not known"}, 404)

    def do_PUT(self) -> None:
        data, oid = self._body(), self.path.rpartition("/")[2]
        assert hashlib.sha256(data).hexdigest() == oid
        self.server.blobs[oid] = data
        self._json({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._body()
        path = unquote(urlsplit(self.path).path)
        if self.server.refuses:
            return self._json({"error": "no"}, self.server.refuses)
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._info(repo, revision)
        repo, _, rest = path.removeprefix("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        return self._file(repo, revision, name)

    def _create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if repo in self.server.repos:
            return self._json({"error": "You already created this model repo", "url": f"{self.server.url}/{repo}"}, 409)
        private = asked.get("private", asked.get("visibility") == "private")
        self.server.repos[repo] = {"private": bool(private), "commits": []}
        return self._json({"url": f"{self.server.url}/{repo}"})

    def _commit(self, repo: str, body: bytes) -> None:
        changes = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                changes[value["path"]] = self.server.blobs[value["oid"]]
        name = self.server.commit(repo, changes)
        self._json({"success": True, "commitOid": name, "commitUrl": f"{self.server.url}/{repo}/commit/{name}"})

    def _info(self, repo: str, revision: str) -> None:
        entry = self.server.repos.get(repo)
        if entry is None:
            return self._json({"error": "Repository not found"}, 404, "RepoNotFound")
        commits = dict(entry["commits"])
        if revision not in ("", "main", *commits):
            return self._json({"error": "Invalid rev id"}, 404, "RevisionNotFound")
        name = revision if revision in commits else (entry["commits"][-1][0] if commits else "0" * 40)
        files = [{"rfilename": one} for one in commits.get(name, {})]
        return self._json({"id": repo, "sha": name, "private": entry["private"], "siblings": files, "tags": []})

    def _file(self, repo: str, revision: str, name: str) -> None:
        entry = self.server.repos.get(repo, {"commits": []})
        data = dict(entry["commits"]).get(revision, {}).get(name)
        if data is None:
            return self._json({"error": "Entry not found"}, 404, "EntryNotFound")
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", revision)
        return self._send(data)

    def _json(self, value: Any, code: int = 200, error: str = "") -> None:
        self.send_response(code)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("Content-Type", "application/json")
        self._send(json.dumps(value).encode())

    def _send(self, data: bytes) -> None:
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization") or ""))
        self.server.posted.append(body)
        return body

    def log_message(self, *_: Any) -> None:
        pass


def _objects(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body)["objects"]
    return found


@contextmanager
def running() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
