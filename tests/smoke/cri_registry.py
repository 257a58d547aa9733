#!/usr/bin/env python3
"""Makes the images that crictl and critest use, from busybox and small C programs, and serves them as a registry.

   cri_registry.py FOLDER PORT     FOLDER for the programs; the registry is at http://127.0.0.1:PORT

The names are those of critest 1.26; the contents are the parts of the originals that its cases look at."""
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import subprocess
import sys
import tarfile

# Serves a page on a port, under the name and with the file by which critest finds nginx.
WEB_SERVER = r"""
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **words) {
  if (strncmp(words[0], "nginx: ", 7)) {
    char *renamed[] = {"nginx: master process nginx", count > 1 ? words[1] : "80", 0};
    execv("/proc/self/exe", renamed);
    return 1;
  }
  FILE *file = fopen("/var/run/nginx.pid", "w");
  if (file) { fprintf(file, "%d\n", getpid()); fclose(file); }
  int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(server, (void *)&address, sizeof address) || listen(server, 16)) return 2;
  for (;;) {
    char request[4096];
    const char *page = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
    int client = accept(server, 0, 0);
    if (client < 0) continue;
    if (read(client, request, sizeof request) > 0) (void)!write(client, page, strlen(page));
    // clients may keep their side open, and others wait
    close(client);
  }
}
"""
# Processes by their name, and the shared memory of the container: not every busybox lists them.
PGREP = b"""#!/bin/sh
for process in /proc/[0-9]*; do
  read -r name 2>/dev/null <"$process/comm" && [ "$name" = "$1" ] && echo "${process#/proc/}"
done
"""
IPCS = r"""
#include <stdio.h>
int main(void) {
  FILE *file = fopen("/proc/sysvipc/shm", "r");
  for (int c; file && (c = getc(file)) != EOF;) putchar(c);
  return 0;
}
"""
EFFECTIVE_USER = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("Effective uid: %d\n", geteuid()); return 0; }
"""
FOLDER, PORT = sys.argv[1], int(sys.argv[2])
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
blobs, manifests = {}, {}


def compile_c(name, text):
    source, program = f"{FOLDER}/{name}.c", f"{FOLDER}/{name}"
    with open(source, "w") as file:
        file.write(text)
    subprocess.check_call(["gcc", "-Os", "-static", "-s", "-o", program, source])
    with open(program, "rb") as file:
        return file.read()


def layer(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, data, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, mode
            if kind == tarfile.LNKTYPE:
                info.linkname = data
            if kind == tarfile.REGTYPE:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    return out.getvalue()


def file(name, data, mode=0o644):
    return (name, tarfile.REGTYPE, data, mode)


def folder(name, mode=0o755):
    return (name, tarfile.DIRTYPE, None, mode)


def put(data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return digest


def image(names, layers, **config):
    packed = [gzip.compress(it, mtime=0) for it in layers]
    document = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"], **config},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(it).hexdigest() for it in layers]},
    }).encode()
    media = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": put(document),
                   "size": len(document)},
        "layers": [{"mediaType": media, "digest": put(it), "size": len(it)} for it in packed],
    }).encode()
    digest = put(manifest)
    for name in names:
        repository, _, tag = name.partition(":")
        manifests[repository, tag or "latest"] = manifests[repository, digest] = manifest


def make():
    with open("/bin/busybox", "rb") as program:
        busybox = program.read()
    applets = subprocess.check_output(["/bin/busybox", "--list"], text=True).split()
    passwd = b"root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"
    group = b"root:x:0:\nwww-data:x:33:\nnobody:x:65534:\n"
    folders = ["bin", "dev", "etc", "home", "proc", "sys", "usr", "usr/sbin", "var", "var/run"]
    base = layer([folder(it) for it in folders] + [folder("tmp", 0o1777), folder("root", 0o700),
                 file("bin/busybox", busybox, 0o755), file("etc/passwd", passwd), file("etc/group", group)]
                 + [file("bin/ipcs", compile_c("ipcs", IPCS), 0o755), file("bin/pgrep", PGREP, 0o755)]
                 # a case masks one of them, so they are no symbolic links
                 + [(f"bin/{it}", tarfile.LNKTYPE, "bin/busybox", 0o755) for it in applets if it not in ("busybox", "ipcs", "pgrep")])
    web = layer([file("usr/sbin/nginx", compile_c("nginx", WEB_SERVER), 0o755)])
    user = layer([file("nonewprivs", compile_c("nonewprivs", EFFECTIVE_USER), 0o4755)])
    groups = layer([file("etc/passwd", passwd + b"default-user:x:1000:1000::/home/default-user:/bin/sh\n"),
                    file("etc/group", group + b"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")])
    tests, tools = "e2e-test-images/", "k8s-staging-cri-tools/"
    image([tests + "busybox:1.29-2"], [base])
    image([tests + "nginx:1.14-2"], [base, web], Cmd=["/usr/sbin/nginx"])
    image([tests + "httpd:2.4.39-4"], [base, web],
          Cmd=["sh", "-c", "echo 'Command line: httpd -D FOREGROUND'; exec /usr/sbin/nginx"])
    image([tests + "nonewprivs:1.3"], [base, user], Entrypoint=["/nonewprivs"], Cmd=[])
    image([tools + "hostnet-nginx-amd64"], [base, web], Cmd=["/usr/sbin/nginx", "12003"])
    image([tools + "test-image-predefined-group"], [base, groups], User="1000")
    for name, value in [("uid", "1002"), ("username", "www-data"), ("uid-group", "1003:users"),
                        ("username-group", "www-data:100")]:
        image([f"{tools}test-image-user-{name}"], [base], User=value)
    for name in ["latest", "1", "2", "3"]:
        image([f"{tools}test-image-{name}"], [base], Labels={"which": name})
    image([tools + "test-image-tag:test"], [base], Labels={"which": "tag"})
    image([tools + "test-image-tag:all"], [base], Labels={"which": "all"})
    image([f"{tools}test-image-tags:{it}" for it in (1, 2, 3)], [base], Labels={"which": "tags"})


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body=b"", media="application/octet-stream", digest=None):
        self.send_response(code)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/v2/":
            return self.answer(200, b"{}", "application/json")
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", path)
        if not found:
            return self.answer(404)
        name, kind, reference = found.groups()
        body = manifests.get((name, reference)) if kind == "manifests" else blobs.get(reference)
        if body is None:
            return self.answer(404, b'{"errors": [{"code": "NAME_UNKNOWN"}]}', "application/json")
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        media = MANIFEST if kind == "manifests" else "application/octet-stream"
        return self.answer(200, body, media, digest)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


os.makedirs(FOLDER, exist_ok=True)
make()
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Registry).serve_forever()
