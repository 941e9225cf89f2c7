"""TLS of ``limpet serve`` and ``limpet gateway``, with throw-away certificates, and the CLI as a client of https."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from limpet.service.tls import make_context
from limpet.settings import Settings, SettingsInvalid
from tests.support.servers import wait_until

GATEWAY = (
    "import sys; from limpet.settings import Settings; from limpet.gateway.run import run; "
    "sys.exit(run(Settings.load(), ('http://127.0.0.1:1',), 'vllm'))"
)


class Files:
    """A CA, and certificates of it on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)

    def issue(self, name: str, host: str = "127.0.0.1") -> tuple[Path, Path, Path]:
        """(certificate, key, both in one file)."""
        leaf = self.ca.issue_cert(host)
        cert, key, both = (self.folder / f"{name}.{kind}" for kind in ("crt", "key", "pem"))
        cert.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(key)
        leaf.private_key_and_cert_chain_pem.write_to_path(both)
        return cert, key, both


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A CA of this test's own."""
    return Files(tmp_path)


def serial(port: int, ca: Path) -> str:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
        found = s.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def cli(url: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that asks the service."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "REDIS_URL"))}
    return subprocess.run(
        [str(Path(sys.executable).parent / "limpet"), *words],
        env=clean | {"LIMPET_URL": url} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_serve_speaks_tls_and_takes_a_renewed_certificate(serve: Callable[..., Any], files: Files, workers: int) -> None:
    """https answers, http does not, TLS 1.1 is refused; SIGHUP takes a new certificate, but a faulty one."""
    cert, key, _ = files.issue("server")
    running = serve(tls_cert=cert, tls_key=key, workers=workers).wait_up()
    assert running.url.startswith("https://")
    port = int(running.url.rpartition(":")[2])
    trust = ssl.create_default_context(cafile=files.ca_file)
    with httpx.Client(base_url=running.url, verify=trust, timeout=20) as http:
        assert http.post("/v1/resolve", json={"key": "k", "session_id": "s"}).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/livez", timeout=10)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/livez", timeout=10)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)), socket.create_connection(("127.0.0.1", port), 10) as plain:
        old.wrap_socket(plain)

    before = serial(port, files.ca_file)
    renewed, renewed_key, _ = files.issue("renewed")
    key.write_bytes(b"")  # a renewal that went wrong half way
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: running.stderr.count("certificate not renewed") == workers, 15, "the refusal")
    assert serial(port, files.ca_file) == before
    cert.write_bytes(renewed.read_bytes())
    key.write_bytes(renewed_key.read_bytes())
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: running.stderr.count('"certificate renewed"') == workers, 15, "the renewal")
    assert {serial(port, files.ca_file) for _ in range(4)}.isdisjoint({before})


def test_mutual_tls(serve: Callable[..., Any], files: Files) -> None:
    """With a client CA, only callers with a certificate of it are heard; one of another CA is a stranger."""
    cert, key, _ = files.issue("server")
    _, _, ours = files.issue("client", "client.example")
    folder = files.folder / "strange"
    folder.mkdir()
    _, _, strange = Files(folder).issue("client", "client.example")
    running = serve(tls_cert=cert, tls_key=key, tls_client_ca=files.ca_file).wait_up()
    for shown, heard in ((ours, True), (strange, False), (None, False)):
        trust = ssl.create_default_context(cafile=files.ca_file)
        if shown is not None:
            trust.load_cert_chain(shown)
        if heard:
            assert httpx.get(f"{running.url}/livez", verify=trust).status_code == 200
        else:
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{running.url}/livez", verify=trust)
    told = cli(running.url, "resolve", "k", "--json", LIMPET_URL_CA=str(files.ca_file), LIMPET_URL_CERT=str(ours))
    assert told.returncode == 0, told.stderr
    without = cli(running.url, "resolve", "k", LIMPET_URL_CA=str(files.ca_file))
    assert without.returncode == 1
    assert "Traceback" not in without.stderr


def test_the_cli_asks_over_https(serve: Callable[..., Any], files: Files) -> None:
    """The CA comes from LIMPET_URL_CA or SSL_CERT_FILE; without it one line says what to set."""
    cert, key, _ = files.issue("server")
    running = serve(tls_cert=cert, tls_key=key).wait_up()
    for variable in ("LIMPET_URL_CA", "SSL_CERT_FILE"):
        told = cli(running.url, "resolve", "k", "--json", **{variable: str(files.ca_file)})
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["source"] == "declared"
    for words in (["resolve", "k"], ["watch"]):
        refused = cli(running.url, *words)
        assert refused.returncode == 1
        assert "LIMPET_URL_CA" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    wrong = cli(running.url.replace("https", "http"), "resolve", "k")
    assert wrong.returncode == 1
    missing = cli(running.url, "resolve", "k", LIMPET_URL_CA="/nowhere.pem")
    assert (missing.returncode, "there is no file" in missing.stderr) == (2, True)


def test_the_gateway_speaks_tls(files: Files, store_url: str, tmp_path: Path) -> None:
    """The same settings, the same certificate."""
    cert, key, _ = files.issue("server")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    variables = {"LIMPET_REDIS_URL": store_url, "LIMPET_PORT": "0", "LIMPET_TLS_CERT": str(cert), "LIMPET_TLS_KEY": str(key)}
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY], env=clean | variables, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            port = line.partition("https://127.0.0.1:")[2].partition(";")[0]
            trust = ssl.create_default_context(cafile=files.ca_file)
            assert httpx.get(f"https://127.0.0.1:{port}/livez", verify=trust, timeout=20).status_code == 200
        finally:
            process.terminate()


def test_faulty_files_are_told(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, mismatched, encrypted or empty: one line that names the variable and says what to do."""
    monkeypatch.chdir(tmp_path)
    cert, key, both = files.issue("one")
    _, other, _ = files.issue("two")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    locked = tmp_path / "locked"
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    private = load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")))
    assert make_context(Settings.load()) is None
    assert make_context(Settings.load(tls_cert=both, tls_key=both)) is not None
    for given, words in (
        ({"tls_cert": cert}, "LIMPET_TLS_KEY is not set"),
        ({"tls_key": key}, "LIMPET_TLS_CERT is not set"),
        ({"tls_client_ca": files.ca_file}, "LIMPET_TLS_CERT is not set"),
        ({"tls_cert": cert, "tls_key": other}, "is not the key of"),
        ({"tls_cert": tmp_path / "none", "tls_key": key}, "cannot be read"),
        ({"tls_cert": cert, "tls_key": tmp_path}, "cannot be read"),
        ({"tls_cert": empty, "tls_key": key}, "must hold a PEM certificate"),
        ({"tls_cert": cert, "tls_key": locked}, "is encrypted"),
        ({"tls_cert": cert, "tls_key": key, "tls_client_ca": empty}, "holds no CA"),
    ):
        with pytest.raises(SettingsInvalid, match="LIMPET_TLS") as caught:
            make_context(Settings.load(**given))
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
