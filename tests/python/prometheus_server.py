"""A Prometheus that scrapes a switch of a test."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

WAIT_S = 20.0


class Prometheus:
    """Scrapes `target` (host:port) under the job name that the alerts expect, until the end of its `with`."""

    def __init__(self, target: str, folder: Path, scrape_interval: str, rules: Path | None = None) -> None:
        scraped = {"job_name": "netfold-switch", "static_configs": [{"targets": [target]}]}
        config = {"global": {"scrape_interval": scrape_interval}, "scrape_configs": [scraped]}
        config |= {"rule_files": [str(rules)]} if rules else {}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = folder / "prometheus.log"
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, f"--web.listen-address={self._address}"], stdout=log, stderr=log
            )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now, each with its `metric` and `value`; none while Prometheus starts."""
        return self._ask("query", query=expression)

    def over_time(self, expression: str, seconds: float, step_s: float) -> list[dict[str, Any]]:
        """The series of an expression over the last seconds, each with its `metric` and `values`."""
        now = time.time()
        return self._ask("query_range", query=expression, start=str(now - seconds), end=str(now), step=str(step_s))

    def _ask(self, what: str, **words: str) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection(self._address, timeout=WAIT_S)
        try:
            connection.request("GET", f"/api/v1/{what}?{urlencode(words)}")
            answer = json.loads(connection.getresponse().read())
        except (OSError, ValueError):
            return []
        finally:
            connection.close()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found
