"""Carries a label of the namespace, such as its cost centre, to every pod that is made in it.

Each interface of the world `metadata-propagator` is one class; `wit_world` is what componentize-py makes of the wit files.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.metadata_propagation import Answer, Place, Placed, Request
from wit_world.exports.plugin import Description, Point
from wit_world.imports.types import Reason

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "description": "What can be configured.",
    "type": "object",
    "properties": {"label": {"description": "The label's key.", "type": "string", "default": "cost-centre"}},
    "additionalProperties": False,
}

_label = "cost-centre"


class Plugin(exports.Plugin):
    def describe(self) -> Description:
        return Description(
            name="pointsman-example-python-labels",
            version="0.1.0",
            points=[Point.METADATA_PROPAGATION],
            config_schema=json.dumps(SCHEMA),
            features=[],
            wants_time=False,
        )

    def configure(self, config: str) -> None:
        """Takes the configuration. What is raised is the sentence that the host shows."""
        global _label
        fields = json.loads(config)
        if not isinstance(fields, dict):
            raise Err("the configuration doesn't fit: it must be an object")
        for name in fields:
            if name != "label":
                raise Err(f"the configuration doesn't fit: unknown field `{name}`, expected `label`")
        label = fields.get("label", "cost-centre")
        if not isinstance(label, str):
            raise Err("the configuration doesn't fit: `label` must be a string")
        _label = label


class MetadataPropagation(exports.MetadataPropagation):
    def propagate(self, request: Request) -> Answer:
        """Adds the label to the pods, unless something nearer to them has set it."""
        # All that is there already must be in the answer, or the target would lose it.
        answer = Answer(labels=request.labels, annotations=request.annotations, dropped=[], reasons=[])
        value = next((entry.value for entry in request.subject.namespace_labels if entry.key == _label), None)
        is_set = any(placed.key == _label for placed in request.labels)
        if value is not None and not is_set and request.target.place == Place.POD_TEMPLATE:
            answer.labels.append(Placed(key=_label, value=value, layer="namespace"))
            answer.reasons.append(Reason(code="NamespaceLabel", message=f"The namespace's {_label} is {value}."))
        return answer
