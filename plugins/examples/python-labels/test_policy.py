"""The policy as an ordinary module: no Wasm is needed to test it, only the bindings (see README.md)."""

import json
import unittest
from dataclasses import asdict
from pathlib import Path

from componentize_py_types import Err
from policy import MetadataPropagation, Plugin
from wit_world.exports.metadata_propagation import Answer, Layer, Place, Placed, Request, Target
from wit_world.exports.plugin import Point
from wit_world.imports.types import Entry, Role, Subject

CASES = json.loads((Path(__file__).parent.parent / "labels-cases.json").read_text(encoding="utf-8"))


def of(enum, name):
    """The value of an enum, which JSON calls by its name in the wit files; None where it is absent."""
    return None if name is None else enum[name.upper().replace("-", "_")]


def records(record, items):
    return [record(**item) for item in items]


def request_of(image) -> Request:
    """The image in JSON has names in camelCase and leaves out what is absent."""
    subject, target = image["subject"], image["target"]
    names = ("group", "version", "kind", "namespace", "name")
    return Request(
        subject=Subject(
            **{name: subject[name] for name in names},
            labels=records(Entry, subject["labels"]),
            annotations=records(Entry, subject["annotations"]),
            namespace_labels=records(Entry, subject["namespaceLabels"]),
        ),
        target=Target(
            group=target["group"],
            kind=target["kind"],
            name=target["name"],
            role=of(Role, target.get("role")),
            group_role=of(Role, target.get("groupRole")),
            place=of(Place, target["place"]),
        ),
        layers=[
            Layer(layer["name"], records(Entry, layer["labels"]), records(Entry, layer["annotations"]))
            for layer in image["layers"]
        ],
        labels=records(Placed, image["labels"]),
        annotations=records(Placed, image["annotations"]),
        now=image.get("now"),
    )


def image_of(answer: Answer):
    """The image in JSON leaves these two out where they are empty."""
    image = asdict(answer)
    return {name: value for name, value in image.items() if value or name not in ("dropped", "reasons")}


class Policy(unittest.TestCase):
    def test_answers_like_the_same_policy_in_other_languages(self):
        self.assertTrue(CASES, "there are no cases")
        for case in CASES:
            with self.subTest(case["name"]):
                Plugin().configure(json.dumps(case["config"]))
                answer = MetadataPropagation().propagate(request_of(case["request"]))
                self.assertEqual(image_of(answer), case["answer"])

    def test_says_what_is_wrong_with_a_configuration(self):
        for config, sentence in [
            ('{"lable": "team"}', "the configuration doesn't fit: unknown field `lable`, expected `label`"),
            ('{"label": 1}', "the configuration doesn't fit: `label` must be a string"),
            ('{"label": null}', "the configuration doesn't fit: `label` must be a string"),
            ("null", "the configuration doesn't fit: it must be an object"),
            ("[]", "the configuration doesn't fit: it must be an object"),
        ]:
            with self.subTest(config), self.assertRaises(Err) as refused:
                Plugin().configure(config)
            self.assertEqual(refused.exception.value, sentence)

    def test_describes_itself(self):
        self.assertEqual(Plugin().describe().points, [Point.METADATA_PROPAGATION])
