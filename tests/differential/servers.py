"""Two API servers to compare: upstream's on an etcd, and Pintle's; and a client for either."""
import http.client
import os
import pathlib
import shutil
import ssl
import subprocess
import time
import urllib.parse

TOKEN = "differential-token"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SERVICE_RANGE = "10.0.0.0/16"
USER_AGENT = "differential/1.0"


class Response:
    def __init__(self, status, headers, body, is_watch=False):
        self.status, self.headers, self.body, self.is_watch = status, headers, body, is_watch

    def media_type(self):
        return (self.headers.get("Content-Type") or "").strip()

    def warnings(self):
        return self.headers.get_all("Warning") or [] if self.headers else []


class Client:
    """One connection that is opened again when the server has closed it."""

    def __init__(self, url, token):
        self.url, self.token, self.connection = urllib.parse.urlsplit(url), token, None
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def connect(self):
        if self.url.scheme == "http":
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=60, context=self.context)

    def request(self, method, path, headers=None, body=None):
        """A response; status 0 stands for a connection that the server dropped."""
        sent = {"User-Agent": USER_AGENT, "Accept": "application/json", "Authorization": "Bearer " + self.token}
        sent.update(headers or {})
        fresh = self.connection is None
        self.connection = self.connection or self.connect()
        try:
            self.connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    self.connection.putheader(name, value)
            if body is not None or method not in ("GET", "HEAD"):
                self.connection.putheader("Content-Length", str(len(body or b"")))
            self.connection.endheaders(body or None)
            response = self.connection.getresponse()
            result = Response(response.status, response.headers, response.read())
            if response.will_close:
                self.close()
            return result
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # a kept connection may have been closed before the request arrived
            if not fresh and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
                return self.request(method, path, headers, body)
            return Response(0, None, b"the connection was dropped")

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


class Servers:
    """Starts both servers in a folder, and stops them."""

    def __init__(self, folder, options):
        self.root, self.options, self.starts, self.processes = pathlib.Path(folder), options, 0, {}

    def spawn(self, name, command):
        log = open(self.folder / (name + ".log"), "wb")
        self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def start(self):
        """Starts both without any object."""
        self.starts += 1
        self.folder = self.root / str(self.starts)
        self.folder.mkdir()
        (self.folder / "tokens.csv").write_text('%s,admin,1,"system:masters"\n' % TOKEN)
        key = str(self.folder / "sa.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, stderr=subprocess.DEVNULL)
        shared = ["--token-auth-file", str(self.folder / "tokens.csv"), "--service-account-signing-key-file", key,
                  "--service-cluster-ip-range", SERVICE_RANGE]
        first = self.options.port
        upstream, here, etcd, peer = ("%s://127.0.0.1:%d" % (scheme, first + offset)
                                      for offset, scheme in enumerate(("https", "https", "http", "http")))
        self.spawn("etcd", [self.options.etcd, "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", etcd,
                            "--advertise-client-urls", etcd, "--listen-peer-urls", peer])
        self.spawn("upstream", [
            self.options.upstream_binary, "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
            "--secure-port", str(first), "--cert-dir", str(self.folder / "certs"), "--service-account-key-file", key,
            "--service-account-issuer", "https://kubernetes.default.svc", "--authorization-mode", "Node,RBAC",
            "--disable-admission-plugins", "ServiceAccount", *shared])
        self.spawn("pintle", [
            self.options.pintle, "up", "--ephemeral", "--components", "apiserver", "--secure-port", str(first + 1),
            "--write-kubeconfig", str(self.folder / "kubeconfig"), *shared])
        clients = Client(upstream, TOKEN), Client(here, TOKEN)
        for client in clients:
            self.wait(client)
        return clients

    def wait(self, client):
        deadline = time.monotonic() + 120
        while client.request("GET", "/readyz").status != 200:
            ended = self.ended()
            if ended or time.monotonic() > deadline:
                raise SystemExit("%s is not ready; ended: %s; logs are in %s" % (client.url.netloc, ended, self.folder))
            time.sleep(0.1)

    def ended(self):
        """The names of the processes that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def stop(self):
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait()
        self.processes = {}


def find(program, variable):
    found = shutil.which(os.environ.get(variable, program))
    if not found:
        raise SystemExit("there is no %s (the variable %s names it)" % (program, variable))
    return found
