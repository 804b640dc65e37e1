"""Users of the HTTP API, for locust: `locust -f tests/locustfile.py --host http://127.0.0.1:8000`."""

import json

from locust import FastHttpUser, constant, task


class Reader(FastHttpUser):
    """Asks for one text after the other."""

    wait_time = constant(0)

    @task
    def complete(self) -> None:
        body = {"prompt": "def read_lines(path):\n", "max_tokens": 16, "ignore_eos": True}
        with self.client.post("/v1/completions", json=body, catch_response=True) as response:
            if response.status_code != 200 or response.json()["usage"]["completion_tokens"] != 16:
                response.failure(f"{response.status_code}: {response.text}")

    @task
    def stream(self) -> None:
        body = {"messages": [{"role": "user", "content": "Read a file."}], "max_tokens": 16, "stream": True}
        with self.client.post("/v1/chat/completions", json=body, catch_response=True) as response:
            events = (response.text or "").strip().split("\n\n")
            if events[-1] != "data: [DONE]" or "error" in json.loads(events[-2].removeprefix("data: ")):
                response.failure(f"{response.status_code}: {events[-2:]}")
