"""Requests to the API server as its administrator."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse


class StatusError(Exception):
    """A response of the API server that reports an error."""

    def __init__(self, code: int, body: str):
        self.code, self.body = code, body
        try:
            message = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            message = body
        super().__init__(f"{code}: {message}")


class Connection:
    """Credentials of a kubeconfig."""

    def __init__(self, kubeconfig: str):
        # the server writes a key per line
        fields: dict[str, str] = {}
        for line in kubeconfig.splitlines():
            key, _, value = line.strip().partition(": ")
            fields.setdefault(key, value)
        self.url = fields["server"]
        self._token = fields["token"]
        authority = base64.b64decode(fields["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)

    def request(self, method: str, path: str, body: object = None) -> object:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        address = urllib.parse.urlsplit(self.url)
        # one connection per request: they may come from any thread
        connection = http.client.HTTPSConnection(address.hostname, address.port, context=self._context)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise StatusError(response.status, text)
        return json.loads(text)
