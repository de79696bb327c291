"""The official CloudEvents SDK parses what the server returns, and the server takes what the SDK writes."""

import json
import sys
import urllib.request

from cloudevents.conversion import to_structured
from cloudevents.http import CloudEvent, from_http, from_json

url = sys.argv[1]


def ask(path, accept=None, body=None, headers=None):
    headers = dict(headers or {}, **({"Accept": accept} if accept else {}))
    with urllib.request.urlopen(urllib.request.Request(url + path, data=body, headers=headers)) as answer:
        return dict(answer.headers.items()), answer.read()


sent = CloudEvent(
    {"type": "sdk.order", "source": "https://example.com/shop", "id": "A1", "subject": "order:1", "tenant": "a"},
    {"total": 120},
)
headers, body = to_structured(sent)
_, answer = ask("/v1/events", body=body, headers=headers)
seq = json.loads(answer)["events"][0]["seq"]

headers, body = ask(f"/v1/events/{seq}", accept="application/cloudevents+json")
got = from_http(headers, body)
for name in ["type", "source", "id", "subject", "tenant"]:
    assert got[name] == sent[name], (name, got)
assert got.data == {"total": 120} and got["seq"] == str(seq), got

own = {"topic": "sdk.own", "payload": [1, 2], "metadata": {"tenant": "b", "deep": {"a": 1}}}
ask("/v1/events", body=json.dumps(own).encode(), headers={"Content-Type": "application/json"})
headers, body = ask("/v1/events?topic=sdk", accept="application/cloudevents-batch+json")
assert headers["content-type"] == "application/cloudevents-batch+json", headers
batch = [from_json(json.dumps(event)) for event in json.loads(body)]
assert [event["type"] for event in batch] == ["sdk.order", "sdk.own"], batch
assert batch[1]["source"] == "/ensue" and batch[1]["tenant"] == "b" and batch[1].data == [1, 2], batch[1]
