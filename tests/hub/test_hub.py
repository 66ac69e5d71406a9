"""To the Hub and back: by a folder, by a server on this machine that stands in for it; errors."""

import base64
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import explainfix as xf
from explainfix.hub import from_pretrained, model_card, push_to_hub, save_pretrained

pytest.importorskip("huggingface_hub", reason="pip install 'explainfix[hub]'")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What of the Hub a client needs to push files and to load them."""

    repos: dict
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, status=200):
        self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def do_POST(self):
        body = self.body()
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            if name.startswith("forbidden/"):
                self.answer_json({"error": "You have no rights here"}, 403)
                return
            self.repos.setdefault(name, {})
            self.answer_json(
                {"url": f"http://{self.headers['Host']}/{name}", "id": name, "name": name}
            )
        elif self.path == "/api/validate-yaml":  # of a card
            self.answer_json({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/.+", self.path):
            files = json.loads(body)["files"]
            told = [{"path": file["path"], "uploadMode": "regular"} for file in files]
            self.answer_json({"files": [file | {"shouldIgnore": False} for file in told]})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/.+", self.path):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.repos[found[1]][entry["value"]["path"]] = content
            place = f"http://{self.headers['Host']}/{found[1]}/commit/{COMMIT}"
            self.answer_json({"success": True, "commitOid": COMMIT, "commitUrl": place})
        else:
            self.answer_json({}, 404)

    def do_GET(self):
        found = re.fullmatch(
            r"/(?:api/models/)?(.+?)(?:/resolve/([^/]+)/(.+)|/revision/.+)?", self.path
        )
        name, revision, file = found.groups()
        if name not in self.repos:
            self.answer(404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif revision not in (None, "main", COMMIT):
            self.answer(404, X_Error_Code="RevisionNotFound", X_Repo_Commit=COMMIT)
        elif file is None:
            self.answer_json({"id": name, "sha": COMMIT, "siblings": []})
        elif file not in self.repos[name]:
            self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        else:
            content = self.repos[name][file]
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            size = str(len(content))
            self.answer(200, content, ETag=tag, X_Repo_Commit=COMMIT, Content_Length=size)

    def do_HEAD(self):
        self.do_GET()


@pytest.fixture
def hub(tmp_path):
    """A hub without repositories, on this machine, and a cache; both end with the test."""
    handler = type("HubOfOneTest", (Hub,), {"repos": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.repos = handler.repos
    server.at = {"endpoint": f"http://127.0.0.1:{server.server_port}", "token": "of-a-test"}
    server.cached = {**server.at, "cache_dir": tmp_path / "cache"}
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


def trained(model):
    """Not as it was built: then a file has to bring the weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01)
    return model.eval()


def fixed():
    model = xf.create_model("torchvision:resnet18", num_classes=3, in_channels=1)
    xf.fix_(model, "ghaar", seed=4)
    return trained(model)


def mixed():
    model = xf.create_model("torchvision:resnet18", num_classes=3, in_channels=1)
    xf.fix_(model, "dct2", mix=True)
    return trained(model)


def steered():
    model = xf.create_model("torchvision:resnet18", num_classes=3, in_channels=1)
    xf.steer_(model, "ghaar", filters=1)
    return trained(model)


def pruned():
    model = fixed()
    scores = xf.saliency(model, [torch.randn(2, 1, 32, 32)])
    xf.channel_prune_(model, torch.randn(1, 1, 32, 32), scores, zero=0.95)
    return trained(model)


def check_same(model, again):
    x = torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(model(x), again.eval()(x))
    assert xf.recipes(model) == xf.recipes(again)
    xf.check_fixed(again)


CARDS = {
    fixed: [
        "| `ghaar` | 4 | paper | | 17 |",
        "`torchvision:resnet18`, 3 classes, 1 input channel",
    ],
    mixed: ["| `dct2` | 0 | paper |", "with a learned 1x1 behind"],
    steered: ["17 layers of 1 fixed filter a channel, steered by a learned 1x1"],
    pruned: ["## Pruned", "are left (", "pruned"],
}


@pytest.mark.parametrize("make", CARDS, ids=lambda make: make.__name__)
def test_every_form_comes_back_by_the_hub_bit_for_bit(make, hub):
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    address = push_to_hub(model, "me/net", scores={"val dice": 0.81234, "note": "a|b"}, **hub.at)
    assert address.endswith(f"/me/net/commit/{COMMIT}")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert set(hub.repos["me/net"]) == {"model.safetensors", "README.md"}
    check_same(model, from_pretrained("me/net", **hub.cached))
    card = hub.repos["me/net"]["README.md"].decode()
    for said in (*CARDS[make], "# net", 'from_pretrained("me/net")', "| val dice | 0.8123 |"):
        assert said in card
    assert r"| note | a\|b |" in card


def test_the_card_is_one_that_the_hub_reads():
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(fixed(), repo_id="me/net", license="mit"))
    assert card.data.library_name == "explainfix"
    assert card.data.license == "mit"
    assert card.data.tags == ["explainfix", "pytorch", "fixed-filters"]


def test_the_numbers_of_the_card_are_the_models():
    model = pruned()
    card = model_card(model)
    built = sum(
        p.numel()
        for p in xf.create_model("torchvision:resnet18", num_classes=3, in_channels=1).parameters()
    )
    now = sum(p.numel() for p in model.parameters())
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert f"| parameters | {now:,} |" in card
    assert f"| of them learned | {learned:,} |" in card
    assert f"Built with {built:,} parameters, {now:,} are left ({now / built:.0%})." in card


def test_the_card_says_what_is_not_as_it_should_be():
    model = xf.create_model("unetd")
    assert "Random weights" in model_card(model)
    xf.fix_(model, "ghaar")
    model.encoder[0][0][3].weight.data += 1
    assert "**Not as they were fixed, 1 of them:** `encoder.0.0.3`." in model_card(model)


def test_a_folder_does_as_well(tmp_path):
    model = fixed()
    save_pretrained(model, tmp_path / "net", scores={"auc": 0.7})
    check_same(model, from_pretrained(tmp_path / "net"))
    with pytest.raises(FileExistsError, match="exists already"):
        save_pretrained(model, tmp_path / "net")
    save_pretrained(model, tmp_path / "net", overwrite=True)
    with pytest.raises(FileNotFoundError, match=r"holds no model\.safetensors"):
        from_pretrained(tmp_path)


def test_what_was_loaded_once_is_in_the_cache(hub):
    model = fixed()
    push_to_hub(model, "me/net", **hub.at)
    from_pretrained("me/net", **hub.cached)
    hub.repos.clear()
    check_same(model, from_pretrained("me/net", local_files_only=True, **hub.cached))


def test_a_network_of_ones_own_comes_back_into_what_is_passed(hub):
    def build():
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3))

    model = build()
    xf.fix_(model, "ghaar")
    push_to_hub(model, "me/own", **hub.at)
    assert (
        'from_pretrained("me/own", model=YOUR_NETWORK)' in hub.repos["me/own"]["README.md"].decode()
    )
    with pytest.raises(ValueError, match="holds a model of your own"):
        from_pretrained("me/own", **hub.cached)
    check_same(model, from_pretrained("me/own", build(), **hub.cached))


# What goes wrong


def test_a_repository_that_is_not_there(hub):
    with pytest.raises(ValueError, match="there is no model 'me/nothing' on the Hub"):
        from_pretrained("me/nothing", **hub.cached)


def test_a_name_that_is_none(hub):
    with pytest.raises(ValueError, match="a/b/c"):
        from_pretrained("a/b/c", **hub.cached)


def test_a_revision_that_is_not_there(hub):
    hub.repos["me/net"] = {}
    with pytest.raises(ValueError, match="has no revision 'v9'"):
        from_pretrained("me/net", revision="v9", **hub.cached)


def test_a_repository_without_our_file(hub):
    hub.repos["me/other"] = {"pytorch_model.bin": b"x"}
    with pytest.raises(ValueError, match="was not pushed by explainfix"):
        from_pretrained("me/other", **hub.cached)


def test_weights_that_explainfix_did_not_write(hub, tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a")
    hub.repos["me/other"] = {"model.safetensors": (tmp_path / "a").read_bytes()}
    with pytest.raises(ValueError, match=r"of 'me/other': .* not written by explainfix\.save"):
        from_pretrained("me/other", **hub.cached)


class Bomb:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('exploded').touch()",)


def test_a_pickle_by_our_name_is_refused_and_not_run(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub.repos["me/bomb"] = {"model.safetensors": pickle.dumps(Bomb())}
    with pytest.raises(ValueError, match="'me/bomb'"):
        from_pretrained("me/bomb", **hub.cached)
    assert not (tmp_path / "exploded").exists()


def test_a_file_may_not_choose_which_code_to_run(hub, tmp_path):
    code = tmp_path / "net.py"
    code.write_text("from torch import nn\n\ndef net():\n    return nn.Conv2d(1, 2, 3)\n")
    model = xf.create_model(f"{code}:net")
    push_to_hub(model, "me/own", **hub.at)
    code.write_text("raise SystemExit('this must not run')\n")
    with pytest.raises(ValueError, match="holds a model of your own"):
        from_pretrained("me/own", **hub.cached)


def test_a_hub_that_cannot_be_reached(hub, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)  # it asks again and again, and waits between
    gone = {**hub.cached, "endpoint": "http://127.0.0.1:9"}  # nobody listens there
    with pytest.raises(ConnectionError, match="'me/net' is not in the cache, and the Hub could"):
        from_pretrained("me/net", **gone)


def test_a_place_where_one_may_not_write(hub):
    with pytest.raises(ValueError, match=r"'forbidden/net' could not be pushed: .*403"):
        push_to_hub(fixed(), "forbidden/net", **hub.at)
    assert hub.repos == {}


# The mixin


MIXIN = """
import torch
from torch import nn
import explainfix as xf
from explainfix.hub import HubMixin

class Net(nn.Module, HubMixin, license="mit"):
    def __init__(self, width: int = 8, classes: int = 2):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, classes, 3))

    def forward(self, x):
        return self.body(x)

model = Net(width=6)
xf.fix_(model, "ghaar", seed=2)
scores = xf.saliency(model, [torch.randn(2, 1, 16, 16)])
xf.channel_prune_(model, torch.randn(1, 1, 16, 16), scores, zero=0.5)
model.push_to_hub("me/mine", scores={"auc": 0.5})
again = Net.from_pretrained("me/mine")
x = torch.randn(2, 1, 16, 16)
assert torch.equal(model.eval()(x), again.eval()(x))
assert xf.recipes(model) == xf.recipes(again)
xf.check_fixed(again)
try:
    Net.from_pretrained("me/no")
except ValueError as error:
    print(error)
"""


def test_the_mixin_makes_a_class_of_ones_own_come_back_by_the_hub(hub, tmp_path):
    # huggingface_hub reads where the Hub is when it is imported.
    place = {"HF_ENDPOINT": hub.at["endpoint"], "HF_HOME": str(tmp_path), "HF_TOKEN": "of-a-test"}
    done = subprocess.run(
        [sys.executable, "-c", MIXIN], env=os.environ | place, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "there is no model 'me/no' on the Hub" in done.stdout
    files = hub.repos["me/mine"]
    assert set(files) == {"model.safetensors", "README.md", "config.json"}
    assert json.loads(files["config.json"]) == {"width": 6, "classes": 2}
    card = files["README.md"].decode()
    told = ('Net.from_pretrained("me/mine")', "| `ghaar` | 2 |", "| auc | 0.5 |", "license: mit")
    for said in told:
        assert said in card


def test_the_mixin_is_for_networks(tmp_path):
    from explainfix.hub import HubMixin

    class Thing(HubMixin):
        pass

    with pytest.raises(TypeError, match="Thing must be a network"):
        Thing().save_pretrained(tmp_path)
